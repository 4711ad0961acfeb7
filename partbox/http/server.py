"""An HTTP server for an ASGI application, in a thread of this process. When the server stops, the asyncio.Event
`request.state.stopping` is set, and a long response, such as a stream of events, must end."""

import asyncio
import logging
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from partbox.errors import PartboxError
from partbox.http.address import LOOPBACK, Address
from partbox.observe.logs.log_event import log_event
from partbox.platform import library

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("partbox.http")

# Seconds for running requests to end after a stop.
STOP_TIMEOUT = 2
# Seconds.
START_TIMEOUT = 10.0
# Bytes of a response in the kernel's buffer. With megabytes, a client that reads nothing would not be noticed.
MAX_UNREAD = 65_536


def check_installed() -> None:
    """Raise SettingsError, with the remedy, if the packages of the HTTP server are not installed."""
    for each in ("starlette", "uvicorn"):
        library(each, "worker", f"serving HTTP needs {each}")


class HttpServer:
    """An HTTP server that runs an ASGI application in a background thread.

    The server handles no signals, and its thread does not keep the process alive."""

    def __init__(self, app: "ASGIApp", host: str = LOOPBACK, port: int = 0) -> None:
        self._app = app
        self._wanted_address = Address(host, port)
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._is_serving = threading.Event()
        self._thread = threading.Thread(target=self._run_server, name="http", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the HTTP server with the actual port, such as `http://127.0.0.1:9464`."""
        return f"http://{self._wanted_address}"

    def start(self) -> None:
        """Start the server, and return once it answers. Raise PartboxError if it cannot use its address."""
        # PartboxError is also raised if packages are missing.
        if self._socket is not None:
            return
        check_installed()
        self._socket = _open_socket(self._wanted_address)
        self._wanted_address = self._wanted_address._replace(port=self._socket.getsockname()[1])
        self._server = self._make_server()
        self._thread.start()
        if not self._is_serving.wait(START_TIMEOUT) or self._loop is None:
            raise PartboxError(f"HTTP at {self.url} did not start: see the log")

    def stop(self) -> None:
        """Stop the server, and give running requests `STOP_TIMEOUT` seconds to finish."""
        # Streams end at once.
        # The method may be called before `start`, and twice.
        if self._server is None:
            return
        self._server.should_exit = True
        if self._loop is not None:
            # The loop has ended by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT + 1.0)

    def _make_server(self) -> "uvicorn.Server":
        import uvicorn

        from partbox.http.connections import ConnectionLimits

        self._limits = ConnectionLimits()
        return uvicorn.Server(
            uvicorn.Config(
                self._serve_request,
                interface="asgi3",
                http=cast(Any, self._limits.make_connection),
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_TIMEOUT,
                callback_notify=self._note_serving,
            )
        )

    def _run_server(self) -> None:
        assert self._server is not None
        assert self._socket is not None
        try:
            self._server.run(sockets=[self._socket])
        # uvicorn may exit the thread by SystemExit too.
        except BaseException as error:
            text = "HTTP at %s ended: no requests are answered there any more; deliveries go on"
            log_event(log, "http_ended", text, self.url, trace=error, address=self.url)
        finally:
            self._socket.close()
            self._is_serving.set()

    async def _note_serving(self) -> None:
        # uvicorn calls this at the start and then regularly.
        self._loop = asyncio.get_running_loop()
        self._is_serving.set()

    async def _serve_request(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        scope.setdefault("state", {})["stopping"] = self._stopping
        await self._limits.answer_request(self._app, scope, receive, send)


def _open_socket(wanted: Address) -> socket.socket:
    try:
        family, *_, where = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM)[0]
        make_connection = socket.create_server(where[:2], family=family)
        # Accepted connections inherit the size.
        make_connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_UNREAD)
        return make_connection
    except OSError as error:
        unknown = isinstance(error, socket.gaierror) or error.errno is None
        said = error.strerror or error if unknown else os.strerror(error.errno or 0)
        raise PartboxError(
            f"cannot serve HTTP at {wanted}: {said}: give another HOST:PORT; port 0 is any free one"
        ) from None
