"""Hundreds of instances that have nothing to do: the CPU that their statements cost the server."""

import time
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from partbox.errors import PartboxError
from partbox.supervisor.membership import longest_rotation
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, is_here
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.idle_instances import IdleInstances, idle_instances, most

IDLE: Final = Budget(
    "instances-idle",
    "CPU of the server for 200 idle instances, each a node of its own, of a core",
    Direction.AT_MOST,
    10,
    "%",
)


class StandingCrew(NamedTuple):
    """So many idle instances, and the CPU that the server spends on them (% of a core)."""

    instances: int
    cpu: float


def curve(database: BenchDatabase) -> Iterator[StandingCrew]:
    """The points of the curve, up to as many instances as the server has connections for."""
    wanted = database.sizes.growth.instances
    fitting = most(database, wanted[-1])
    steps = sorted({min(each, fitting) for each in wanted})
    with idle_instances(database) as members:
        there = 0
        for number in steps:
            database.say(f"  {number} instances join ...")
            try:
                members.join(["default"] * (number - there))
            except PartboxError as error:
                if there == 0:
                    raise
                database.say(f"  no more than {there}: {error}")
                return
            there = number
            yield StandingCrew(number, _cpu(database, members, number))


def _cpu(database: BenchDatabase, members: IdleInstances, number: int) -> float:
    """Only when each has looked at the others once more, for who sees that somebody has joined reads all of them anew,
    and has settled."""
    settling = database.sizes.growth.settling
    database.pause(max(database.sizes.calm, settling, longest_rotation(number, database.outbox().settings)))
    before, began = members.server(), time.monotonic()
    database.pause(database.sizes.growth.standing)
    return 100 * (members.server() - before) / (time.monotonic() - began)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if not is_here(statements.backend(database.conn, database.schema)):
        yield Unmeasured(IDLE.name, ELSEWHERE)
        return
    database.fresh()
    points = list(curve(database))
    ((last, cpu),) = points[-1:]
    note = "; ".join(f"{each.instances}: {each.cpu:.2f} %" for each in points)
    if last < database.sizes.growth.instances[-1]:
        note += f"; no more than {last}, for want of connections or of processors for them"
    details = {"instances": [float(each.instances) for each in points], "cpu": [each.cpu for each in points]}
    yield Measured(IDLE.name, cpu, note, details)


GROUP: Final = LineGroup((IDLE,), _measure)
