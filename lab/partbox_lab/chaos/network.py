"""TCP proxies between nodes and the database, which can delay, hang, or cut connections. They run in one thread's
loop."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

PASS, DELAY, HANG, HALF, CUT = "pass", "net-delay", "net-hang", "net-half", "net-cut"
CHUNK: Final = 65_536  # bytes
SLOW: Final = 0.05  # seconds that each chunk is late
LOOK = 0.02  # seconds
HOST: Final = "127.0.0.1"


class Link:
    """One proxied connection, which may hang alone."""

    def __init__(self) -> None:
        self.stuck = False


class Wire:
    """A proxy between one node and the database. All its connections share a state, and each may hang alone. Called in
    the network's loop."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._state = PASS
        self._ends: set[asyncio.StreamWriter] = set()
        # One task for each connection.
        self._carried: set[asyncio.Task[None]] = set()
        # Open links, in the order of their opening.
        self._links: list[Link] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen on a free port, which `port` then holds."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, state: str) -> None:
        """Change the state. `CUT` aborts the open connections and refuses others."""
        self._state = state
        if state == CUT:
            self._abort()

    async def stick(self, which: float) -> Link | None:
        """Let one connection hang and return it, or None without any. `which` selects it: 0 to below 1."""
        free = [link for link in self._links if not link.stuck]
        if not free:
            return None
        link = free[int(which * len(free))]
        link.stuck = True
        return link

    async def loosen(self, link: Link) -> None:
        """Let a hung connection carry data again."""
        link.stuck = False

    def end(self) -> None:
        """Cut all connections for good, including connections just being made, and cancel their tasks."""
        self._state = CUT
        self._abort()
        for carried in self._carried:
            carried.cancel()

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def _abort(self) -> None:
        for end in self._ends:
            end.transport.abort()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state == CUT:
            writer.transport.abort()
            return
        # Added here and not in the task, since a task that is cancelled before its start runs nothing.
        self._ends.add(writer)
        carried = asyncio.create_task(self._carry(reader, writer))
        self._carried.add(carried)
        carried.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        try:
            there, back = await self._reach()
            ends.add(back)
            self._ends.add(back)
            # The state may have changed during the connect.
            if self._state != CUT:
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
        try:
            while data := await source.read(CHUNK):
                # Delayed bytes arrive late, but whole.
                if self._state == DELAY:
                    await asyncio.sleep(SLOW)
                # `HALF` holds back the bytes from the database only.
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
    """A thread that runs all proxies of a run. Any other thread may call its methods."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-network", daemon=True)
        self._wires: list[Wire] = []

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wire(self) -> Wire:
        """Open a proxy and return it."""
        wire = Wire(*self._target)
        self._do(wire.open())
        self._wires.append(wire)
        return wire

    def set(self, wire: Wire, state: str) -> None:
        """Change the state of a proxy."""
        self._do(wire.set(state))

    def stick(self, wire: Wire, which: float) -> Link | None:
        """Let one connection of a proxy hang, and return it or None."""
        return self._do(wire.stick(which))

    def loosen(self, wire: Wire, link: Link) -> None:
        """Let a hung connection carry data again."""
        self._do(wire.loosen(link))

    def stop(self) -> None:
        """Cut all connections and end the thread. A network that was never started can be stopped too."""
        if self._thread.is_alive():
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for wire in self._wires:
            wire.end()
        # Before the servers are closed: asyncio leaves a connection open that is being accepted while its server
        # closes.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*others, return_exceptions=True)
        for wire in self._wires:
            wire.close()

    def _do(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()
