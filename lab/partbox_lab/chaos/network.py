"""Wires between the nodes and the database that can be slow, dead, half dead or cut: a TCP proxy in a thread."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
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
        self._carried: set[asyncio.Task[None]] = set()  # a task for each connection
        self._links: list[Link] = []  # the links that are open, in the order of their opening
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

    def end(self) -> None:
        """Lose every connection, also those that are just made, for good."""
        self._state = CUT
        self._abort()
        for carried in self._carried:
            carried.cancel()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def _abort(self) -> None:
        for end in self._ends:
            end.transport.abort()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state == CUT:
            writer.transport.abort()
            return
        self._ends.add(writer)  # here, since a task that is cancelled before its start does nothing
        carried = asyncio.create_task(self._carry(reader, writer))
        self._carried.add(carried)
        carried.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until both its ends are closed."""
        ends = {writer}
        try:
            there, back = await self._reach()
            ends.add(back)
            self._ends.add(back)
            if self._state != CUT:  # since it began to connect
                await self._pass(Link(), (reader, back), (there, writer))
        except OSError:
            pass
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    async def _pass(
        self,
        link: Link,
        questions: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        answers: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._links.append(link)
        try:
            await asyncio.gather(self._pump(link, *questions, False), self._pump(link, *answers, True))
        finally:
            self._links.remove(link)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, self._port)

    async def _pump(self, link: Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        """Carry bytes one way until either end is gone; delayed bytes arrive late and whole."""
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
            sink.close()
            with suppress(OSError):
                await sink.wait_closed()


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
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for wire in self._wires:
            wire.end()
        # Before the servers: a connection that is being accepted while its server closes is left open by asyncio.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*others, return_exceptions=True)
        for wire in self._wires:
            wire.close()

    def _do(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()
