"""Prints what handlers and an application do to each other in one event loop, and in two.

`python -m partbox_lab.ratios.shared_loop`. First what handlers do to requests: an application answers some a second,
each of which computes a little and waits for some rounds of the loop, while handlers work on a backlog. Then what an
application that computes does to events: how long one waits from its publishing to its handler. `--slices` (ms) tries
other lengths of a slice of the loop.
"""

import argparse
import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from statistics import quantiles
from typing import Any, Literal

import psycopg

from partbox import Event, Outbox
from partbox.db.schema.migrate import migrate
from partbox.worker.runners import loop_hosts
from partbox_lab.bench.workspace import SCHEMA, bench_workspace

REQUESTS = 100  # a second
ROUNDS = 10  # of the loop, in which a request waits for a database, say
COMPUTES = 0.0002  # seconds that a request computes
KEYS = 500
EVENTS = 100  # a second
CONNECTIONS = 20

Own = Literal["own"] | None


def compute(seconds: float) -> None:
    """Hold the loop and the interpreter."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def nothing(event: Any) -> None:
    """Handle it."""


async def waits(event: Any) -> None:
    """Handle it as one that asks a database."""
    await asyncio.sleep(0.001)


async def computes(event: Any) -> None:
    """Handle it as one that should not be `async def`."""
    compute(0.001)


HANDLERS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "does nothing": nothing,
    "waits 1 ms": waits,
    "computes 1 ms": computes,
}


def line(name: str, waited: list[float], more: str = "") -> str:
    cuts = quantiles(waited, n=100, method="inclusive")
    said = "".join(f"{1_000 * cuts[at - 1]:>9.2f} p{at}" for at in (50, 99))
    return f"{name:<36}{len(waited):>6}{said}{1_000 * max(waited):>9.2f} most  {more}"


async def answer_requests(given: argparse.Namespace) -> list[float]:
    """Return the seconds that each request took, from its arrival to its answer."""
    took: list[float] = []
    clock: Callable[[], float] = time.process_time if given.cpu else time.monotonic
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def request(arrived: float) -> None:
        compute(COMPUTES)
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        took.append(clock() - arrived)

    def arrive() -> None:
        """Let requests arrive at a steady rate, from another thread as if from the network."""
        for _ in paced(REQUESTS, given.seconds):
            arrived = clock()
            loop.call_soon_threadsafe(lambda: tasks.add(loop.create_task(request(arrived))))  # noqa: B023  it is called soon

    await asyncio.to_thread(arrive)
    await asyncio.gather(*tasks)
    return took


def paced(much: int, seconds: float) -> Iterator[int]:
    """Yield `much` numbers a second, for so many seconds."""
    due = time.monotonic()
    for number in range(round(much * seconds)):
        yield number
        due += 1 / much
        time.sleep(max(0.0, due - time.monotonic()))


class Backlog:
    """Events that each case delivers anew, from its own subscription."""

    def __init__(self, dsn: str, much: int) -> None:
        self._dsn, self._cases = dsn, 0
        outbox = Outbox(dsn, schema=SCHEMA)
        with psycopg.connect(dsn) as conn:
            outbox.publish_many(
                conn,
                (Event("Met", number, aggregate_type="Key", aggregate_id=str(number % KEYS)) for number in range(much)),
            )

    async def beside(
        self, handler: Callable[[Any], Awaitable[None]], own: Own, given: argparse.Namespace
    ) -> tuple[float, list[float]]:
        """Events a second, and how long requests took beside them."""
        self._cases += 1
        outbox, name = Outbox(self._dsn, schema=SCHEMA), f"backlog_{self._cases}"
        handled, begun = [0], threading.Event()

        async def handle(event: Any) -> None:
            handled[0] += 1
            begun.set()
            await handler(event)

        outbox.subscriptions.create(name, "beginning")
        outbox.register(handle, "Met", subscription=name)
        async with outbox.worker(subscription=name, concurrency=given.concurrency, loop=own):
            await asyncio.to_thread(begun.wait)
            before, began = handled[0], time.process_time()
            took = await answer_requests(given)
            cpu = time.process_time() - began if given.cpu else given.seconds
            rate = (handled[0] - before) / cpu
        return rate, took


async def handlers_beside_requests(backlog: Backlog, given: argparse.Namespace) -> None:
    print(f"{REQUESTS} requests a second, ms:", flush=True)
    print(line("no worker", await answer_requests(given)), flush=True)
    for kind, handler in HANDLERS.items():
        rate, took = await backlog.beside(handler, "own", given)
        print(line(f"{kind}: a loop of their own", took, f"{rate:>8.0f} events/s"), flush=True)
        for ms in given.slices:
            loop_hosts.SLICE = ms / 1_000
            rate, took = await backlog.beside(handler, None, given)
            print(line(f"{kind}: slices of {ms:g} ms", took, f"{rate:>8.0f} events/s"), flush=True)


async def requests_beside_handlers(dsn: str, given: argparse.Namespace) -> None:
    """Measure how long events wait while the application computes part of the time, in pieces."""
    print(f"{EVENTS} events a second, ms from the publishing to the handler:", flush=True)
    for part, piece in ((0.0, 0.0), (0.5, 0.005), (0.5, 0.05), (0.9, 0.005), (0.9, 0.05)):
        owns: Iterable[Own] = ("own", None)
        for own in owns:
            waited = await beside_computing(dsn, own, part, piece, given.seconds)
            where = "a loop of their own" if own else "the same loop"
            print(line(f"computes {part:.0%} by {1_000 * piece:g} ms: {where}", waited), flush=True)


async def beside_computing(dsn: str, own: Own, part: float, piece: float, seconds: float) -> list[float]:
    outbox, waited = Outbox(dsn, schema=SCHEMA), list[float]()
    name = f"timed_{part}_{piece}_{own}"

    async def handle(event: Any) -> None:
        waited.append(time.monotonic() - event.payload)

    async def busy() -> None:
        while True:
            compute(piece)
            await asyncio.sleep(piece / part - piece)

    outbox.subscriptions.create(name, "now")
    outbox.register(handle, "Timed", subscription=name)
    async with outbox.worker(subscription=name, loop=own) as worker:
        task = asyncio.create_task(busy()) if part else None
        await asyncio.to_thread(publish, dsn, outbox, seconds)
        await asyncio.to_thread(worker.wait_until_empty, 60.0)
        if task is not None:
            task.cancel()
    return waited


def publish(dsn: str, outbox: Outbox, seconds: float) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for number in paced(EVENTS, seconds):
            with conn.transaction():
                outbox.publish(conn, "Timed", time.monotonic(), aggregate_type="Key", aggregate_id=str(number % KEYS))


async def measure(dsn: str, given: argparse.Namespace) -> None:
    await handlers_beside_requests(Backlog(dsn, given.backlog), given)
    await requests_beside_handlers(dsn, given)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="shared_loop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--backlog", type=int, default=500_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--slices", type=float, nargs="+", default=[1_000 * loop_hosts.SLICE])
    parser.add_argument(
        "--cpu", action="store_true", help="requests by the CPU time of this process: on a machine that others use"
    )
    parser.add_argument("--dsn", help=f"another server than an embedded one; its schema {SCHEMA} is made, and dropped")
    given = parser.parse_args()
    with bench_workspace(given.dsn, CONNECTIONS) as place:
        migrate(place.dsn, SCHEMA)
        asyncio.run(measure(place.dsn, given))


if __name__ == "__main__":
    main()
