"""Many publishers at full speed, in a process of their own, with the bell on and off in turn."""

import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
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

Conn = psycopg.Connection[Any]
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
    with ExitStack() as stack:
        conns = [stack.enter_context(psycopg.connect(task.dsn, autocommit=True)) for _ in range(CLIENTS)]
        on, off = (
            partial(_turn, task, leash, conns, Outbox(task.dsn, schema=task.schema, bell=bell))
            for bell in ("on", "off")
        )
        task.path.write_text(json.dumps(in_turn(task.rounds, on, off)))


def _turn(task: CrowdTask, leash: Leash, conns: Sequence[Conn], outbox: Outbox) -> float:
    """Transactions per second of all clients, for the seconds of one turn.

    They are counted from when the worker, which has slept perhaps, has noticed: until then they ring for it.
    """
    stopping, done = threading.Event(), [0] * len(conns)
    clients = [
        threading.Thread(target=_publish, args=(task, number, conn, outbox, stopping, done))
        for number, conn in enumerate(conns)
    ]
    for each in clients:
        each.start()
    is_over = leash.poll(LEAD)
    before, began = sum(done), time.monotonic()
    is_over = is_over or leash.poll(task.seconds)
    rate = (sum(done) - before) / (time.monotonic() - began)
    stopping.set()
    for each in clients:
        each.join()
    if is_over:
        sys.exit()
    return rate


def _publish(  # one client
    task: CrowdTask, number: int, conn: Conn, outbox: Outbox, stopping: threading.Event, done: list[int]
) -> None:
    while not stopping.is_set():
        with conn.transaction():
            if task.updates:
                statements.change_account(conn, task.schema, number)
            payload, key = {"number": done[number], "note": NOTE}, f"{number}-{done[number] % 500}"
            outbox.publish(conn, "OrderPlaced", payload, aggregate_type="Order", aggregate_id=key)
        done[number] += 1
