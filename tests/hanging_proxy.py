"""A proxy before the server whose connections hang, one by one: it acknowledges everything and passes nothing on."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

HOST = "127.0.0.1"
CHUNK = 65_536


class _Line:
    """One connection through the proxy, named by what its client calls itself at the start."""

    def __init__(self) -> None:
        self.heard = b""
        self.passes = asyncio.Event()
        self.passes.set()


class Proxy:
    """Its methods may be called from any thread."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn) as conn:
            self._target = conn.info.host, conn.info.port
        self._dsn = dsn
        self._lines: list[_Line] = []
        self._closed = False  # to new ones: they hang from the beginning
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop.run_forever, name="hanging proxy", daemon=True)
        self._thread.start()
        self._server = self._do(self._listen())

    def stop(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def dsn(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return make_conninfo(self._dsn, host=HOST, hostaddr=HOST, port=str(port))

    def hang(self, name: str = "", *, later: bool = False) -> int:
        """Every connection there is of those that call themselves so hangs for ever; `later`: new ones of any name too,
        until `go_on`. How many."""
        return self._do(self._hang(name.encode(), later))

    def go_on(self) -> None:
        """Let bytes that hung pass, late and whole; nothing new hangs."""
        self._do(self._go_on())

    def lead_to(self, dsn: str) -> None:
        """New connections reach the server of this DSN."""
        there = conninfo_to_dict(dsn)
        self._target = str(there["host"]), int(str(there["port"]))

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, HOST, 0)

    async def _hang(self, name: bytes, later: bool) -> int:
        found = [line for line in self._lines if name in line.heard and line.passes.is_set()]
        for line in found:
            line.passes.clear()
        self._closed = later
        return len(found)

    async def _go_on(self) -> None:
        self._closed = False
        for line in self._lines:
            line.passes.set()

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, (host, port) = _Line(), self._target
        self._lines.append(line)
        if self._closed:
            line.passes.clear()
        try:
            if host.startswith("/"):
                there, back = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                there, back = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        for pumping in (self._pump(line, reader, back, client=True), self._pump(line, there, writer, client=False)):
            task = asyncio.create_task(pumping)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, line: _Line, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, client: bool
    ) -> None:
        try:
            while data := await source.read(CHUNK):
                if client and len(line.heard) < 1_000:
                    line.heard += data
                await line.passes.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    def _do(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()


@contextmanager
def hanging_proxy(dsn: str) -> Iterator[Proxy]:
    proxy = Proxy(dsn)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
