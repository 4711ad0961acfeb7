"""Many publishers at full speed, in a process of their own, with the bell on and off in turn.

They are tasks of one thread: sixteen threads that take turns at the interpreter's lock make the rate of a turn vary by
a third, which hides what the bell costs.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg

from partbox.bench.ground import Ground
from partbox.bench.leash import Leash, LeashedProcess
from partbox.bench.rounds import in_turn
from partbox.db.harness import bench as statements
from partbox.errors import PartboxError
from partbox.outbox import Outbox

CLIENTS: Final = 16
LEAD: Final = 0.2  # seconds
NOTE: Final = "x" * 150

Conn = psycopg.AsyncConnection[Any]
Rates = tuple[list[float], list[float]]
"""Transactions per second of each round, with the bell on and off."""


@dataclass(frozen=True, slots=True)
class CrowdTask:
    """The task of the process. `updates`: each transaction changes a row of the client's own before it publishes."""

    dsn: str
    schema: str
    updates: bool
    rounds: int
    seconds: float
    path: Path


def crowding(ground: Ground, *, updates: bool) -> Rates:
    """Have the clients publish, each transaction one event."""
    statements.open_accounts(ground.conn, ground.schema, CLIENTS)
    path = ground.folder / f"crowd-{updates}"
    sizes = ground.sizes
    task = CrowdTask(ground.dsn, ground.schema, updates, sizes.turns, sizes.turn, path)
    with LeashedProcess("partbox-bench-crowd", _run, task) as process:
        ground.until(lambda: process.ended, "publishing by many clients")
    if not path.exists():
        raise PartboxError("the clients of the bench ended without having measured anything")
    on, off = json.loads(path.read_text())
    return on, off


def _run(task: CrowdTask, leash: Leash) -> None:
    """The process's program."""
    with asyncio.Runner() as runner:
        conns = runner.run(_connected(task.dsn))

        def turn(outbox: Outbox) -> float:
            return runner.run(_turn(task, leash, conns, outbox))

        on, off = (partial(turn, Outbox(task.dsn, schema=task.schema, bell=bell)) for bell in ("on", "off"))
        task.path.write_text(json.dumps(in_turn(task.rounds, on, off)))
        runner.run(_close(conns))


async def _connected(dsn: str) -> list[Conn]:
    return [await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(CLIENTS)]


async def _close(conns: Sequence[Conn]) -> None:
    for conn in conns:
        await conn.close()


async def _turn(task: CrowdTask, leash: Leash, conns: Sequence[Conn], outbox: Outbox) -> float:
    """Transactions per second of all clients, for the seconds of one turn.

    They are counted from when the worker, which has slept perhaps, has noticed: until then they ring for it.
    """
    done = [0] * len(conns)
    is_over = asyncio.Event()
    clients = [
        asyncio.create_task(_publish(task, number, conn, outbox, is_over, done)) for number, conn in enumerate(conns)
    ]
    await asyncio.sleep(LEAD)
    before, began = sum(done), time.monotonic()
    await asyncio.sleep(task.seconds)
    rate = (sum(done) - before) / (time.monotonic() - began)
    is_over.set()
    await asyncio.gather(*clients)
    if leash.poll(0):
        sys.exit()
    return rate


async def _publish(  # one client
    task: CrowdTask, number: int, conn: Conn, outbox: Outbox, is_over: asyncio.Event, done: list[int]
) -> None:
    while not is_over.is_set():
        async with conn.transaction():
            if task.updates:
                await statements.change_account(conn, task.schema, number)
            payload, key = {"number": done[number], "note": NOTE}, f"{number}-{done[number] % 500}"
            await outbox.publish_async(conn, "OrderPlaced", payload, aggregate_type="Order", aggregate_id=key)
        done[number] += 1
