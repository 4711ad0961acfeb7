"""CPU of the server for hundreds of idle instances."""

import time
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from partbox.errors import PartboxError
from partbox.supervisor.membership import compute_longest_rotation
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
    """A point of the curve: a number of idle instances, and the CPU of the server for them in percent of a core."""

    instances: int
    cpu: float


def curve(database: BenchDatabase) -> Iterator[StandingCrew]:
    """Yield the CPU for growing numbers of idle instances, up to the number that the server has connections for."""
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
    # An instance that notices a new one reads all instances again. So wait until each has polled the others once more.
    settling = database.sizes.growth.settling
    database.pause(max(database.sizes.calm, settling, compute_longest_rotation(number, database.outbox().settings)))
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
