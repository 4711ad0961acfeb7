"""Wires between the nodes and the database that can be slow, dead, half dead or cut: a TCP proxy in a thread."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

PASS, DELAY, HANG, HALF, CUT = "pass", "net-delay", "net-hang", "net-half", "net-cut"
CHUNK: Final = 65_536
SLOW: Final = 0.05  # seconds that each chunk is late
LOOK = 0.02
HOST: Final = "127.0.0.1"


class Link:
    """One connection over a wire; a `stuck` one carries nothing, in either direction."""

    def __init__(self) -> None:
        self.stuck = False


class Wire:
    """One node's way to the database: it connects to `port`. Its connections share its state, and each may be stuck."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._state = PASS
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._links: dict[Link, int] = {}  # those that are open, in the order of their opening, and their pumps
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, state: str) -> None:
        """Put the wire in this state; a cut one loses its connections."""
        self._state = state
        if state == CUT:
            self._abort()

    async def stick(self, which: float) -> Link | None:
        """Make one of its connections stick, chosen by `which` (0 to below 1); None if there is none."""
        free = [link for link in self._links if not link.stuck]
        if not free:
            return None
        link = free[int(which * len(free))]
        link.stuck = True
        return link

    async def loosen(self, link: Link) -> None:
        """Make it carry bytes again."""
        link.stuck = False

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._state = CUT
        self._abort()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def _abort(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state == CUT:
            writer.transport.abort()
            return
        try:
            there, back = await self._reach()
        except OSError:
            writer.transport.abort()
            return
        link = Link()
        self._links[link] = 2
        for source, sink, answers in ((reader, back, False), (there, writer, True)):
            pump = asyncio.create_task(self._pump(link, source, sink, answers))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, self._port)

    async def _pump(self, link: Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        """Carry bytes one way until either end is gone; delayed bytes arrive late and whole."""
        self._ends.add(sink)
        try:
            while data := await source.read(CHUNK):
                if self._state == DELAY:
                    await asyncio.sleep(SLOW)
                while link.stuck or self._state == HANG or (self._state == HALF and answers):
                    if self._state == CUT:
                        return
                    await asyncio.sleep(LOOK)
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._ends.discard(sink)
            sink.close()
            self._links[link] -= 1
            if not self._links[link]:
                del self._links[link]


class Network:
    """Runs wires in a thread of its own; its methods may be called from any other."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-network", daemon=True)
        self._wires: list[Wire] = []

    def start(self) -> None:
        self._thread.start()

    def wire(self) -> Wire:
        """A new one, open."""
        wire = Wire(*self._target)
        self._do(wire.open())
        self._wires.append(wire)
        return wire

    def set(self, wire: Wire, state: str) -> None:
        self._do(wire.set(state))

    def stick(self, wire: Wire, which: float) -> Link | None:
        """Make one connection over the wire stick; see `Wire.stick`."""
        return self._do(wire.stick(which))

    def loosen(self, wire: Wire, link: Link) -> None:
        self._do(wire.loosen(link))

    def stop(self) -> None:
        """Cut and close everything. Stopping what was never started is fine."""
        if self._thread.is_alive():
            for wire in self._wires:
                self._do(wire.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _do(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()
