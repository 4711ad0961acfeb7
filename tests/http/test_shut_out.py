"""Who watches the live page, or keeps connections open, does not keep probes from their answers."""

import http.client
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from overviews import overview, watched
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from waiting import eventually

from partbox.dashboard import build_access
from partbox.dashboard import build_routes as page
from partbox.dashboard.routes import MOST_STREAMS
from partbox.http import connections
from partbox.http.address import Address
from partbox.http.routes import build_routes
from partbox.http.server import HttpServer
from partbox.settings import load


class Still:
    """A glance that always sees the same."""

    def look(self):
        return overview()


async def flood(_):
    """A stream of more than all buffers between the two take."""

    async def parts():
        for _ in range(30):
            yield bytes(1_000_000)

    return StreamingResponse(parts())


@pytest.fixture
def node():
    shown = page(Still(), lambda: "", load(), build_access(Address("127.0.0.1", 0), None))
    server = HttpServer(Starlette(routes=[*build_routes("partbox", [watched()]), *shown, Route("/flood", flood)]))
    server.start()
    yield urlsplit(server.url)
    server.stop()


def opened(stack, node, path):
    connection = http.client.HTTPConnection(node.netloc, timeout=30)
    stack.callback(connection.close)
    connection.request("GET", path)
    return connection.getresponse()


def probe(node):
    with ExitStack() as stack:
        return opened(stack, node, "/healthz").status


def test_the_number_of_open_streams_is_bounded_and_probes_are_answered_beside_them(node):
    with ExitStack() as pages:
        streams = [opened(pages, node, "/events") for _ in range(MOST_STREAMS)]
        assert {each.status for each in streams} == {200}
        assert all(each.readline().startswith(b"data: ") for each in streams)
        with ExitStack() as more:
            refused = [opened(more, node, "/events") for _ in range(20)]
            assert {each.status for each in refused} == {503}
            assert b"close one" in refused[0].read()
        assert probe(node) == 200

    def admitted():
        with ExitStack() as stack:
            return opened(stack, node, "/events").status == 200

    eventually(admitted, interval=0.05)


def test_a_burst_of_streams_at_once_is_bounded_too(node):
    """All requests are there before the first of them is answered."""
    with ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection((node.hostname, node.port), 30)) for _ in range(120)]
        for each in crowd:
            each.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heads = [each.recv(12) for each in crowd]
        assert heads.count(b"HTTP/1.1 200") == MOST_STREAMS
        assert heads.count(b"HTTP/1.1 503") == 120 - MOST_STREAMS
        assert probe(node) == 200


def test_connections_that_are_kept_without_a_request_make_room_for_a_probe(node, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    with ExitStack() as stack:
        for number in range(20):
            conn = stack.enter_context(socket.create_connection((node.hostname, node.port), 30))
            if number % 2:  # answered once, and kept alive
                conn.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert conn.recv(12) == b"HTTP/1.1 200"
        assert [probe(node) for _ in range(30)] == [200] * 30


METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
FLOOD = b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


SLOWLY = 300_000  # bytes a second
ENOUGH = 3 * SLOWLY


def unread(stack, node, requests=200, request=METRICS):
    """A client that sends requests and reads nothing."""
    link = stack.enter_context(socket.socket())
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    link.settimeout(30)
    link.connect((node.hostname, node.port))
    link.sendall(request * requests)
    return link


def is_ended(link):
    """True once the other end has given it up: nothing of what it has not read is needed for that."""
    try:
        link.send(b"x")
    except OSError:
        return True
    return False


def test_clients_that_read_no_answers_make_room_for_a_probe(node, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    with ExitStack() as stack:
        links = [unread(stack, node) for _ in range(30)]
        assert [probe(node) for _ in range(30)] == [200] * 30
        eventually(lambda: sum(map(is_ended, links)) >= 10)


def test_streams_that_nobody_reads_make_room_for_a_probe(node, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 10)
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 120.0)  # none is given up for standing still
    with ExitStack() as stack:
        for _ in range(10):
            assert unread(stack, node, 1, FLOOD).recv(12) == b"HTTP/1.1 200"  # and no more of it

        def answered():
            try:
                return probe(node) == 200
            except (http.client.HTTPException, OSError):
                return False  # until one of them has more than its client takes

        eventually(answered)


def test_an_answer_that_nobody_reads_is_given_up(node, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.2)
    with ExitStack() as stack:
        link = unread(stack, node)
        eventually(lambda: is_ended(link), interval=0.05)


def test_an_answer_that_is_read_slowly_comes_whole(node, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 2.5)
    with ExitStack() as stack:
        link, found, began = unread(stack, node, 10), b"", time.monotonic()
        while found.count(b"HTTP/1.1 200") < 10 and len(found) < ENOUGH:
            until = began + len(found) / SLOWLY
            eventually(lambda until=until: time.monotonic() >= until)
            more = link.recv(4_096)
            assert more, "it was ended"
            found += more
        assert time.monotonic() - began > 2.5, "longer than anybody may stand still"


def test_a_request_body_that_does_not_arrive_is_not_waited_for(node, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.2)
    with socket.create_connection((node.hostname, node.port), 30) as link:
        link.sendall(HALF)
        eventually(lambda: is_ended(link), interval=0.05)
