"""Many publishers at full speed, in a process of their own, in two ways that take turns.

The publishers are tasks of one thread. With 16 threads that compete for the GIL, the rate of a turn varies by a third,
which hides the cost of the bell."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
import psycopg

from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.protocol.hashing import partition_of
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.child_process import ChildProcess, StopPipe
from partbox_lab.bench.rounds import in_turn

CLIENTS: Final = 16  # the default number of clients
LEAD: Final = 0.2  # seconds
NOTE: Final = "x" * 150

Conn = psycopg.AsyncConnection[Any]
Rates = tuple[list[float], list[float]]  # transactions per second of each round, one way and the other
# Publish an event in an open transaction, given the connection, the client and its event number.
Publish = Callable[[Conn, int, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PublishersTask:
    """Parameters of the publishing process."""

    dsn: str
    schema: str
    clients: int
    updates: bool  # each transaction first changes a row of its client
    bare: bool  # compare with the bare INSERT instead of the bell off
    rounds: int
    seconds: float  # of each turn
    path: Path  # of the rates, as JSON


def publish_concurrently(
    database: BenchDatabase, *, updates: bool, clients: int = CLIENTS, bare: bool = False, turn: float = 0.0
) -> Rates:
    """Publish by many clients, one event per transaction, and return the rates with the bell on and of the other way:
    with the bell off, or the bare INSERT. `turn` is the length of a turn in seconds, if it differs from that of 16
    clients."""
    statements.open_accounts(database.conn, database.schema, clients)
    path = database.folder / f"publishers-{clients}-{updates}"
    sizes = database.sizes
    rounds, turn = (sizes.turns, sizes.turn) if not turn else (sizes.rounds, turn)
    task = PublishersTask(database.dsn, database.schema, clients, updates, bare, rounds, turn, path)
    with ChildProcess("partbox-bench-publishers", _run, task) as process:
        database.until(lambda: process.ended, "publishing by many clients")
    if not path.exists():
        raise PartboxError("the clients of the bench ended without having measured anything")
    on, off = json.loads(path.read_text())
    return on, off


def _run(task: PublishersTask, stop: StopPipe) -> None:
    with asyncio.Runner() as runner:
        conns = runner.run(_connected(task))

        def turn(publish: Publish) -> float:
            return runner.run(_turn(task, stop, conns, publish))

        one = _by_outbox(Outbox(task.dsn, schema=task.schema, bell="on"))
        other = _bare(task.schema) if task.bare else _by_outbox(Outbox(task.dsn, schema=task.schema, bell="off"))
        task.path.write_text(json.dumps(in_turn(task.rounds, partial(turn, one), partial(turn, other))))
        runner.run(_close(conns))


def _by_outbox(outbox: Outbox) -> Publish:
    async def publish(conn: Conn, client: int, number: int) -> None:
        payload, key = {"number": number, "note": NOTE}, _key(client, number)
        await outbox.publish_async(conn, "OrderPlaced", payload, aggregate_type="Order", aggregate_id=key)

    return publish


def _bare(schema: str) -> Publish:
    async def publish(conn: Conn, client: int, number: int) -> None:
        key = _key(client, number)
        values = {
            "partition": partition_of(key),
            "event_id": uuid4(),
            "event_type": "OrderPlaced",
            "aggregate_type": "Order",
            "aggregate_id": key,
            "payload": orjson.dumps({"number": number, "note": NOTE}).decode(),
        }
        await statements.insert_async(conn, schema, values)

    return publish


def _key(client: int, number: int) -> str:
    return f"{client}-{number % 500}"


async def _connected(task: PublishersTask) -> list[Conn]:
    return [await psycopg.AsyncConnection.connect(task.dsn, autocommit=True) for _ in range(task.clients)]


async def _close(conns: Sequence[Conn]) -> None:
    for conn in conns:
        await conn.close()


async def _turn(task: PublishersTask, stop: StopPipe, conns: Sequence[Conn], publish: Publish) -> float:
    done = [0] * len(conns)
    is_over = asyncio.Event()
    clients = [
        asyncio.create_task(_publish(task, number, conn, publish, is_over, done)) for number, conn in enumerate(conns)
    ]
    # A sleeping worker needs a moment to notice. The clients ring the bell until then, so the count starts afterwards.
    await asyncio.sleep(LEAD)
    before, began = sum(done), time.monotonic()
    await asyncio.sleep(task.seconds)
    rate = (sum(done) - before) / (time.monotonic() - began)
    is_over.set()
    await asyncio.gather(*clients)
    if stop.poll(0):
        sys.exit()
    return rate


async def _publish(
    task: PublishersTask, number: int, conn: Conn, publish: Publish, is_over: asyncio.Event, done: list[int]
) -> None:
    while not is_over.is_set():
        async with conn.transaction():
            if task.updates:
                await statements.change_account(conn, task.schema, number)
            await publish(conn, number, done[number])
        done[number] += 1
