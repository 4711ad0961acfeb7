"""CPU of the statements of live traffic above millions of done records, compared with an empty log."""

from collections.abc import Set
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Final

from partbox.db.operator import segments
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, is_here
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.growth.log import KINDS, OwnedLog, grown
from partbox_lab.bench.rounds import in_rounds, in_turn, ratio

SAID: Final = {"publish": "publish", "quick": "quick poll", "poll": "full poll", "save": "save"}
BUDGETS: Final = {
    kind: Budget(
        f"records-{kind}", f"CPU of a {SAID[kind]} above 20 M done records vs an empty log", Direction.AT_MOST, 1.05
    )
    for kind in KINDS
}


# Rounds with the same sessions. Two sessions that do the same may differ by some percent as long as they live.
SITTING: Final = 10

Costs = dict[str, float]


def _costs(database: BenchDatabase, log: OwnedLog) -> Costs:
    database.check()
    return log.costs(database.sizes.growth.cycles)


def _compared(database: BenchDatabase, grown_log: str) -> tuple[list[Costs], list[Costs]]:
    """Return the costs of each round above the records and beside them, with new sessions for every few rounds."""
    above: list[Costs] = []
    beside: list[Costs] = []
    sides = [(grown_log, above), (database.schema, beside)]
    left = database.sizes.growth.turns
    while left > 0:
        with ExitStack() as stack:
            first, second = (partial(_costs, database, OwnedLog(database, schema, stack)) for schema, _ in sides)
            found = in_turn(min(SITTING, left), first, second)
        for (_, costs), new in zip(sides, found, strict=True):
            costs.extend(new)
        # The order in which the sessions are opened alternates.
        sides.reverse()
        left -= SITTING
    return above, beside


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    """Measure both logs in turn, while both exist."""
    if not is_here(statements.backend(database.conn, database.schema)):
        yield from (Unmeasured(name, ELSEWHERE) for name in wanted)
        return
    sizes = database.sizes.growth
    database.fresh()
    with grown(database, sizes.records, sizes.segment) as schema:
        tables = len(segments.list_segments(database.conn, schema))
        above, beside = _compared(database, schema)
    for kind in KINDS:
        ours, theirs = ([each[kind] * 1e6 for each in side] for side in (above, beside))
        said = f"{median(ours):,.0f} µs, empty {median(theirs):,.0f} µs"
        note = f"{said}; {sizes.records:,} records in {tables} segments{in_rounds(sizes.turns)}"
        result = Measured(BUDGETS[kind].name, ratio(ours, theirs), note, {"above them": ours, "empty": theirs})
        if result.name in wanted:
            yield result


GROUP: Final = LineGroup(tuple(BUDGETS.values()), _measure)
