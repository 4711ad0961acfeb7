"""A bad line between a worker and its database: a TCP proxy that hangs, trickles, delays, cuts and resets."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

T = TypeVar("T")

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536
LOOK: Final = 0.01
LATE: Final = 0.05  # seconds that every chunk of a slow line is late
CRUMB: Final = 300  # bytes that a trickle carries at a time
RESET: Final = struct.pack("ii", 1, 0)

GOOD, HANG, HALF, TRICKLE, DELAY, CUT, RST, SLOW = "good", "hang", "half", "trickle", "delay", "cut", "rst", "slow"


class Line:
    """All connections over it are in the same state, but those that `hang` has struck. Any thread."""

    def __init__(self, dsn: str, rate: float = 0.0) -> None:
        with psycopg.connect(dsn) as conn:
            self._target = conn.info.host, conn.info.port
        self._plain = dsn
        self._rate = rate  # bytes a second, 0 for any
        self._state = GOOD
        self._stuck: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bad line", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, HOST, 0))

    @property
    def dsn(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return make_conninfo(self._plain, host=HOST, hostaddr=HOST, port=str(port))

    @property
    def open(self) -> int:
        """The number of connections."""
        return len(self._clients)

    def be(self, state: str) -> None:
        """Be so from now on; CUT and RST end the connections there are, and let nobody in."""
        self._do(self._be(state))

    def hang(self) -> int:
        """Every connection there is now carries nothing any more, for good; new ones are good. How many."""
        return self._do(self._hang())

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _be(self, state: str) -> None:
        self._state = state
        if state in (CUT, RST):
            for client in self._clients:
                if state == RST:
                    client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.transport.abort()

    async def _hang(self) -> int:
        self._stuck |= self._clients
        return len(self._stuck)

    async def _end(self) -> None:
        self._server.close()
        for client in self._clients:
            client.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._state in (CUT, RST):
            client.transport.abort()
            return
        host, port = self._target
        if host.startswith("/"):
            there, server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there, server = await asyncio.open_connection(host, port)
        self._clients.add(client)
        for source, sink, answers in ((reader, server, False), (there, client, True)):
            task = asyncio.create_task(self._pump(client, source, sink, answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, client: asyncio.StreamWriter, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool
    ) -> None:
        try:
            while data := await source.read(CHUNK):
                while client in self._stuck or self._state == HANG or (self._state == HALF and answers):
                    await asyncio.sleep(LOOK)
                await self._carry(data, sink)
        except OSError:
            pass
        finally:
            self._clients.discard(client)
            self._stuck.discard(client)
            sink.close()

    async def _carry(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        if self._state == DELAY:
            await asyncio.sleep(LATE)
        if self._rate:
            await asyncio.sleep(len(data) / self._rate)
        size = CRUMB if self._state == TRICKLE else len(data)
        for at in range(0, len(data), size):
            sink.write(data[at : at + size])
            await sink.drain()
            if self._state == TRICKLE:
                await asyncio.sleep(LOOK)

    def _do(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(120)
