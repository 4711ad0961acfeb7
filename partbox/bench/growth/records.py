"""The statements of live traffic above millions of records that are done, beside those on an empty log."""

from collections.abc import Set
from contextlib import ExitStack
from statistics import median
from typing import Final

from partbox.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox.bench.cpu import ELSEWHERE, is_here
from partbox.bench.family import Family, Results
from partbox.bench.ground import Ground
from partbox.bench.growth.log import KINDS, OwnedLog, grown
from partbox.bench.rounds import in_rounds, in_turn, ratio
from partbox.db.harness import bench as statements
from partbox.db.operator import segments

SAID: Final = {"publish": "publish", "quick": "quick poll", "poll": "full poll", "save": "save"}
BUDGETS: Final = {
    kind: Budget(
        f"records-{kind}", f"CPU of a {SAID[kind]} above 20 M done records vs an empty log", Direction.AT_MOST, 1.05
    )
    for kind in KINDS
}


def _costs(ground: Ground, log: OwnedLog) -> dict[str, float]:
    ground.check()
    return log.costs(ground.sizes.growth.cycles)


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    """Both logs are there at the same time, and take turns."""
    if not is_here(statements.backend(ground.conn, ground.schema)):
        yield from (Unmeasured(name, ELSEWHERE) for name in wanted)
        return
    sizes = ground.sizes.growth
    ground.fresh()
    with grown(ground, sizes.records, sizes.segment) as schema, ExitStack() as stack:
        tables = len(segments.segments(ground.conn, schema))
        full, empty = (OwnedLog(ground, each, stack) for each in (schema, ground.schema))
        above, beside = in_turn(sizes.turns, lambda: _costs(ground, full), lambda: _costs(ground, empty))
    for kind in KINDS:
        ours, theirs = ([each[kind] * 1e6 for each in side] for side in (above, beside))
        said = f"{median(ours):,.0f} µs, empty {median(theirs):,.0f} µs"
        note = f"{said}; {sizes.records:,} records in {tables} segments{in_rounds(sizes.turns)}"
        result = Measured(BUDGETS[kind].name, ratio(ours, theirs), note, {"above them": ours, "empty": theirs})
        if result.name in wanted:
            yield result


FAMILY: Final = Family(tuple(BUDGETS.values()), _measure)
