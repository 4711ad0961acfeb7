"""Answers of receivers that are hostile or broken: too large, compressed a thousandfold, without an end, too slow.

Fault: a third party's answer takes the memory or the time of the relay.
"""

import asyncio
import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from delivered import delivered

from partbox.errors import DownstreamUnavailable, UnrecoverableError
from partbox.sinks import dead
from partbox.sinks.http_post import post
from partbox.sinks.sink import Sink
from partbox.sinks.webhook import WebhookSink

BOMB = gzip.compress(bytes(50 << 20), 9)
MOST = 5 << 20  # bytes of memory for eight answers
SHORT = 0.5  # seconds
MUCH_LONGER = 20.0

Answer = Callable[[socket.socket, threading.Event], None]


class Receiver:
    """Takes requests and gives each an answer of bytes, over as many connections as are opened to it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ending = threading.Event()
        self.requests: list[bytes] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/hook"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._ending.set()
        self._server.close()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as asked:
            try:
                while line := asked.readline():
                    head = line
                    while (line := asked.readline()) not in (b"\r\n", b""):
                        head += line
                    (length,) = (each for each in head.lower().splitlines() if each.startswith(b"content-length:"))
                    self.requests.append(head + asked.read(int(length.partition(b":")[2])))
                    self._answer(connection, self._ending)
            except OSError:
                pass


@contextmanager
def receiving(answer: Answer) -> Iterator[Receiver]:
    receiver = Receiver(answer)
    try:
        yield receiver
    finally:
        receiver.close()


def plain(status: str, body: bytes, *headers: str) -> Answer:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers])
    return lambda connection, _: connection.sendall(head.encode() + b"\r\n\r\n" + body)


def bomb(status: str) -> Answer:
    return plain(status, BOMB, "Content-Encoding: gzip")


def moved_to(url: str) -> Answer:
    return plain("302 Found", b"", f"Location: {url}")


def endless(status: str) -> Answer:
    def answer(connection: socket.socket, ending: threading.Event) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        while not ending.is_set():
            connection.sendall(b"10000\r\n" + bytes(0x10000) + b"\r\n")

    return answer


def trickled(text: bytes, piece: int = 1) -> Answer:
    def answer(connection: socket.socket, ending: threading.Event) -> None:
        for at in range(0, len(text), piece):
            if ending.wait(SHORT / 10):  # each piece comes before a timeout that it would start anew
                return
            connection.sendall(text[at : at + piece])

    return answer


SLOW = {
    "head": trickled(b"HTTP/1.1 204 No Content\r\nX: " + b"y" * 1_000),
    "body": trickled(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000\r\n\r\n" + b"y" * 1_000),
    "interim answers": trickled(b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000, 27),
}


async def sent(sink: Sink, *keys: str) -> list[object]:
    try:
        return await sink.handle([delivered(number, key) for number, key in enumerate(keys, 1)])
    finally:
        await sink.close()


@pytest.mark.parametrize(("status", "kind"), [("200 OK", type(None)), ("400 Bad Request", UnrecoverableError)])
@pytest.mark.parametrize("answer", [bomb, endless])
def test_only_the_status_of_an_endless_answer_counts_and_its_body_takes_no_memory(answer, status, kind):
    with receiving(answer(status)) as receiver:
        tracemalloc.start()
        try:
            outcomes = asyncio.run(sent(WebhookSink(receiver.url), *"abcdefgh"))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert {type(each) for each in outcomes} == {kind}
    assert most < MOST
    assert all(b"\r\naccept-encoding: identity\r\n" in each for each in receiver.requests)


@pytest.mark.parametrize("body", [b"", b"no such order", b"x" * 10_000])
def test_a_connection_whose_answer_was_short_is_used_again(body):
    with receiving(plain("200 OK", body)) as receiver:
        assert asyncio.run(sent(WebhookSink(receiver.url), *["same"] * 10)) == [None] * 10
    assert (len(receiver.requests), receiver.connections) == (10, 1)


def test_an_error_has_the_reason_and_the_beginning_of_the_body_unless_that_is_compressed():
    with receiving(plain("400 Not today", b"no such  order" + b"!" * 10_000)) as receiver:
        (error,) = asyncio.run(sent(WebhookSink(receiver.url), "a"))
    assert str(error).startswith("HTTP 400 Not today: no such order!!!")
    assert len(str(error)) < 300
    with receiving(plain("400 Not today", gzip.compress(b"no such order"), "Content-Encoding: gzip")) as receiver:
        (error,) = asyncio.run(sent(WebhookSink(receiver.url), "a"))
    assert str(error) == "HTTP 400 Not today"


@pytest.mark.parametrize("slow", SLOW)
def test_the_time_of_a_whole_answer_is_bounded_however_its_bytes_trickle(slow):
    with receiving(SLOW[slow]) as receiver:
        began = time.monotonic()
        outcomes = asyncio.run(sent(WebhookSink(receiver.url, timeout=SHORT), "a", "b"))
    assert {type(each) for each in outcomes} == {DownstreamUnavailable}
    assert time.monotonic() - began < MUCH_LONGER


def test_a_dead_letter_answered_by_slow_headers_is_not_delivered_and_holds_up_nothing(monkeypatch):
    monkeypatch.setattr(dead, "TIMEOUT", SHORT)
    with receiving(SLOW["head"]) as receiver, pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
        dead.build_dead_sender(receiver.url)(delivered(1), "no use")


def test_a_slow_handshake_of_tls_is_cut_as_well():
    slow = socket.create_server(("127.0.0.1", 0))

    def shake() -> None:
        connection, _ = slow.accept()
        with connection, slow:
            try:
                connection.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 kB, whose bytes come one by one
                while True:
                    connection.sendall(b"x")
                    time.sleep(SHORT / 10)
            except OSError:
                pass

    shaking = threading.Thread(target=shake)
    shaking.start()
    with pytest.raises(TimeoutError, match="no answer within"):
        post(f"https://127.0.0.1:{slow.getsockname()[1]}/", b"{}", {}, SHORT)
    shaking.join()


@pytest.mark.parametrize("answer", [bomb, endless])
def test_the_body_of_an_answer_to_a_dead_event_is_not_read(answer):
    with receiving(answer("200 OK")) as receiver:
        dead.build_dead_sender(receiver.url)(delivered(1), "no use")
    with receiving(answer("503 Away")) as receiver, pytest.raises(ConnectionError, match=r"^HTTP 503 Away$"):
        dead.build_dead_sender(receiver.url)(delivered(1), "no use")


def test_a_redirection_is_no_delivery_of_a_dead_event():
    with receiving(plain("200 OK", b"a page")) as page, receiving(moved_to(page.url)) as receiver:
        with pytest.raises(ConnectionError, match=r"^HTTP 302 Found$"):
            dead.build_dead_sender(receiver.url)(delivered(1), "no use")
        assert page.requests == []
