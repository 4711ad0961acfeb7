"""The server that pages and metrics share."""

import asyncio
import http.client
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from waiting import eventually

from partbox.errors import PartboxError
from partbox.http import connections
from partbox.http.server import HttpServer


def hello(_):
    return PlainTextResponse("hello")


async def stream(request):
    async def ticks():
        while not request.state.stopping.is_set():
            yield b"tick\n"
            await asyncio.wait([asyncio.ensure_future(request.state.stopping.wait())], timeout=0.05)

    return StreamingResponse(ticks())


async def length(request):
    return PlainTextResponse(str(len(await request.body())))


def client(request):
    return PlainTextResponse(str(tuple(request.client)))


ROUTES = [
    Route("/", hello),
    Route("/stream", stream),
    Route("/length", length, methods=["POST"]),
    Route("/client", client),
]


@pytest.fixture
def serve():
    servers = []

    def serve(**options) -> HttpServer:
        servers.append(HttpServer(Starlette(routes=ROUTES), **options))
        servers[-1].start()
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


@contextmanager
def asked(server: HttpServer, path: str = "/") -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    try:
        connection.request("GET", path)
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def dialled(server: HttpServer) -> socket.socket:
    where = urlsplit(server.url)
    return socket.create_connection((where.hostname, where.port), timeout=30)


def is_dropped(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def greeting(server: HttpServer) -> bytes:
    with asked(server) as response:
        return response.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_server_answers_at_its_address_as_soon_as_start_returns(serve, host):
    server = serve(host=host)
    assert server.url.startswith(f"http://{host}:")
    assert greeting(server) == b"hello"
    server.start()
    server.stop()
    server.stop()
    with pytest.raises(OSError, match=r"refused|reset"):
        greeting(server)


def test_an_open_stream_does_not_delay_the_stop_of_the_server(serve):
    server = serve()
    with asked(server, "/stream") as response:
        assert response.readline() == b"tick\n"
        server.stop()
        assert not any(thread.name == "http" and thread.is_alive() for thread in threading.enumerate())
        response.read()  # it ended as a stream ends, not broken off


def test_servers_can_start_one_after_another_on_the_same_port(serve):
    first = serve()
    port = urlsplit(first.url).port
    first.stop()
    assert greeting(serve(port=port)) == b"hello"


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1", "in use"), ("192.0.2.1", "assign"), ("no.such.host.invalid", "known|resolution")]
)
def test_an_address_that_cannot_be_had_is_refused_in_one_line(serve, host, said):
    taken = urlsplit(serve().url).port
    with pytest.raises(PartboxError, match=said) as error:
        HttpServer(hello, host, taken).start()
    assert f"{host}:{taken}" in str(error.value)
    assert "give another" in str(error.value)
    assert "\n" not in str(error.value)


def test_connections_beyond_the_most_are_dropped_and_make_room_when_they_end(serve, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    server = serve()
    with ExitStack() as streams:
        for _ in range(3):
            assert streams.enter_context(asked(server, "/stream")).readline() == b"tick\n"
        with dialled(server) as beyond:
            assert is_dropped(beyond)

    def answers():
        try:
            return greeting(server) == b"hello"
        except OSError:
            return False

    eventually(answers)


def test_an_idle_connection_is_dropped_for_a_newer_one(serve, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    server = serve()
    idle = [dialled(server) for _ in range(3)]
    assert greeting(server) == b"hello"
    assert is_dropped(idle[0])
    for each in idle:
        each.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: h"], ids=["nothing", "half a head"])
def test_a_connection_without_a_complete_request_is_dropped_after_a_timeout(serve, monkeypatch, said):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.05)
    with dialled(serve()) as connection:
        connection.sendall(said)
        assert is_dropped(connection)


def test_a_connection_with_an_incomplete_second_request_is_dropped_after_a_timeout(serve, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.05)
    with dialled(serve()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        found = b""
        while not found.endswith(b"hello"):
            found += connection.recv(4096)
        connection.sendall(b"GET / HT")
        assert is_dropped(connection)


HALF = b"POST /length HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf"


def test_a_connection_with_an_incomplete_body_is_dropped_after_a_timeout(serve, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.1)
    with dialled(serve()) as connection:
        connection.sendall(HALF)
        assert is_dropped(connection)


def test_a_connection_with_an_incomplete_body_is_dropped_before_one_that_awaits_its_answer(serve, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    server = serve()
    with ExitStack() as links:
        half, *streams = [links.enter_context(dialled(server)) for _ in range(3)]
        half.sendall(HALF)
        for each in streams:
            each.sendall(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
            assert each.recv(4_096)
        assert greeting(server) == b"hello"
        assert is_dropped(half)
        assert [each.recv(4_096) != b"" for each in streams] == [True, True]


def test_a_body_in_pieces_and_requests_sent_ahead_are_answered(serve, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 5.0)
    with dialled(serve()) as connection:
        connection.sendall(HALF)
        connection.sendall(b"done!" + HALF + b"again" + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        found = b""
        while not found.endswith(b"hello"):
            found += connection.recv(4_096)
    assert found.count(b"HTTP/1.1 200") == 3
    assert found.count(b"\r\n\r\n9") == 2


def test_uvicorn_still_has_the_features_that_the_connection_limits_rely_on(serve):
    """The limits stand on these two."""
    where = f"uvicorn {uvicorn.__version__}, see partbox/http/connections.py:"
    assert issubclass(connections.H11Protocol, asyncio.Protocol), f"{where} its protocol is no asyncio.Protocol"
    with dialled(serve()) as connection:
        connection.sendall(b"GET /client HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        *_, named = b"".join(iter(lambda: connection.recv(4_096), b"")).decode().partition("\r\n\r\n")
        assert named == str(connection.getsockname()), f"{where} an application does not hear who asks"


def test_a_stream_outlives_the_request_timeout(serve, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.05)
    with asked(serve(), "/stream") as response:
        assert [response.readline() for _ in range(4)] == [b"tick\n"] * 4


def test_stop_before_start_is_fine():
    HttpServer(hello).stop()


def test_without_the_worker_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(PartboxError, match=r"needs uvicorn: pip install 'partbox\[worker\]'"):
        HttpServer(hello).start()


def test_the_server_listens_only_on_the_loopback_address_by_default(serve):
    server = serve()
    # Every machine has this address too, and who listens on all addresses listens on it.
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", urlsplit(server.url).port), timeout=5)
