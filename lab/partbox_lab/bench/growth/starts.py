"""CPU time of many processes that start together, on several nodes of one machine."""

import os
from collections.abc import Iterable, Set
from contextlib import ExitStack
from typing import Final

import psutil

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, is_here, total
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.idle_instances import most
from partbox_lab.bench.node import BenchNode

TOGETHER: Final = Budget(
    "start-together",
    "CPU until 200 processes that start together all own partitions vs as many starts one by one",
    Direction.AT_MOST,
    3,
)
TO_START: Final = 900.0  # seconds


def _start_one_by_one(database: BenchDatabase, starts: int) -> float:
    """Return the CPU seconds of one start, until the process owns its share."""
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1) as node:
        before = _spent(database, node.pids)
        for number in range(starts):
            node.scale(number + 2)
        return (_spent(database, node.pids) - before) / starts


def _start_together(database: BenchDatabase, nodes: int, processes: int) -> float:
    """Start nodes of so many processes each, and return the CPU seconds until all own their shares."""
    database.fresh()
    before = _spent(database, ())
    started = [
        BenchNode(database, database.outbox(ignore, node=f"node-{number}"), processes) for number in range(nodes)
    ]
    with ExitStack() as stack:
        for node in started:
            stack.callback(node.stop)
            node.begin()
        started[0].settle(nodes * processes, TO_START)
        return _spent(database, [pid for node in started for pid in node.pids]) - before


def _spent(database: BenchDatabase, pids: Iterable[int]) -> float:
    """Return the CPU seconds of this process, of the workers and of the server so far, ended processes included."""
    mine, me = os.times(), statements.backend(database.conn, database.schema)
    postmaster = psutil.Process(me.pid).parent()
    ended = 0.0 if postmaster is None else sum(postmaster.cpu_times()[2:4])
    backends = statements.backends(database.conn, database.schema, database.name)
    return sum(mine[:4]) + ended + total([*pids, *(each.pid for each in backends)])


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if not is_here(statements.backend(database.conn, database.schema)):
        yield Unmeasured(TOGETHER.name, ELSEWHERE)
        return
    nodes, processes, starts = database.sizes.growth.starts
    database.say(f"  {starts} processes start one by one ...")
    one = _start_one_by_one(database, starts)
    processes = max(1, most(database, nodes * processes) // nodes)
    database.say(f"  {nodes} nodes of {processes} processes start together ...")
    together = _start_together(database, nodes, processes) / (nodes * processes)
    note = f"{together:.2f} s and {one:.2f} s of CPU a start; {nodes} nodes of {processes} processes"
    yield Measured(TOGETHER.name, together / one, note, {"together": together, "one by one": one})


GROUP: Final = LineGroup((TOGETHER,), _measure)
