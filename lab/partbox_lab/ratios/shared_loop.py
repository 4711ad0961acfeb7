"""Print how handlers and an application slow each other down in one event loop, and in two.

Run as `python -m partbox_lab.ratios.shared_loop`. First the effect of handlers on requests: an application answers
requests at a steady rate, each of which computes a little and waits for some rounds of the loop, while handlers work on
a backlog. Then the effect of a computing application on events: the time from the publishing of an event to its
handler. `--slices` (ms) tries other lengths of a slice of the loop."""

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

REQUESTS = 100  # per second
# Rounds of the loop that a request waits, as for a database.
ROUNDS = 10
COMPUTES = 0.0002  # seconds of a request
KEYS = 500
EVENTS = 100  # per second
CONNECTIONS = 20

Own = Literal["own"] | None


def compute(seconds: float) -> None:
    """Keep the thread busy for `seconds`, with the loop and the GIL."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def nothing(event: Any) -> None:
    """Do nothing with an event."""


async def waits(event: Any) -> None:
    """Sleep for 1 ms, like a handler that queries a database."""
    await asyncio.sleep(0.001)


async def computes(event: Any) -> None:
    """Compute for 1 ms, like a handler that should not be `async def`."""
    compute(0.001)


HANDLERS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "does nothing": nothing,
    "waits 1 ms": waits,
    "computes 1 ms": computes,
}


def line(name: str, waited: list[float], more: str = "") -> str:
    """Return a line with the median, p99 and maximum of `waited` (seconds) in milliseconds."""
    cuts = quantiles(waited, n=100, method="inclusive")
    said = "".join(f"{1_000 * cuts[at - 1]:>9.2f} p{at}" for at in (50, 99))
    return f"{name:<36}{len(waited):>6}{said}{1_000 * max(waited):>9.2f} most  {more}"


async def answer_requests(given: argparse.Namespace) -> list[float]:
    """Answer requests for the given seconds, and return the seconds from arrival to answer of each."""
    took: list[float] = []
    clock: Callable[[], float] = time.process_time if given.cpu else time.monotonic
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def request(arrived: float) -> None:
        compute(COMPUTES)
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        took.append(clock() - arrived)

    def arrive() -> None:
        """Schedule requests at a steady rate from another thread, as a network would."""
        for _ in paced(REQUESTS, given.seconds):
            arrived = clock()
            loop.call_soon_threadsafe(lambda: tasks.add(loop.create_task(request(arrived))))  # noqa: B023  it runs soon

    await asyncio.to_thread(arrive)
    await asyncio.gather(*tasks)
    return took


def paced(much: int, seconds: float) -> Iterator[int]:
    """Yield numbers at a rate of `much` per second, for `seconds`."""
    due = time.monotonic()
    for number in range(round(much * seconds)):
        yield number
        due += 1 / much
        time.sleep(max(0.0, due - time.monotonic()))


class Backlog:
    """Published events that each case delivers anew, from a subscription of its own."""

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
        """Deliver while requests are answered. Return the events per second, and the seconds that each request took."""
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
    """Print the times of requests without handlers, and beside each kind of handler."""
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
    """Print the waits of events while the application computes a part of the time, in pieces."""
    print(f"{EVENTS} events a second, ms from the publishing to the handler:", flush=True)
    for part, piece in ((0.0, 0.0), (0.5, 0.005), (0.5, 0.05), (0.9, 0.005), (0.9, 0.05)):
        owns: Iterable[Own] = ("own", None)
        for own in owns:
            waited = await beside_computing(dsn, own, part, piece, given.seconds)
            where = "a loop of their own" if own else "the same loop"
            print(line(f"computes {part:.0%} by {1_000 * piece:g} ms: {where}", waited), flush=True)


async def beside_computing(dsn: str, own: Own, part: float, piece: float, seconds: float) -> list[float]:
    """Return the seconds that each event waited while the application computes."""
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
    """Publish events at a steady rate, with the time in their payload."""
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
