"""Measures the lines that are named in the database of the first argument, at small sizes, and prints the report."""

import json
import os
import sys
from types import MappingProxyType

from partbox_lab.bench import GROWTH, LINES, BenchPlan, Sizes, perform
from partbox_lab.bench.sizes import GrowthSizes

TINY = Sizes(
    events=2_000,
    textbook=300,
    rounds=1,
    pairs=1,
    waits=0.1,
    pages=1,
    singles=40,
    turns=1,
    turn=0.1,
    latency=MappingProxyType({1: 1.0, 100: 0.3, 1_000: 0.2}),
    idle=0.3,
    open=0.6,
    done=1_000,
    memory=3_000,
    load=100,
    lease=1.0,
    growth=GrowthSizes(
        records=1_000,
        segment=2_000_000,
        turns=1,
        cycles=2,
        instances=(1, 3),
        settling=0.0,
        standing=0.3,
        burst=2_000,
        large=3,
        payload=50_000,
        publishers=20,
        crowded=0.2,
        open_transactions=(5, 20),
        beside=1_000,
        handlers=20,
        troubled=300,
        behind=2_000,
        subscriptions=3,
        commanded=3,
        purged=3,
        rebalances=((1, 2),),
        changes=1,
        beat=0.1,
        starts=(2, 2, 1),
    ),
    calm=0.2,
)


def main() -> None:
    dsn, *names = sys.argv[1:]
    lines = LINES if LINES.names >= {*names} else GROWTH
    with os.fdopen(os.dup(2), "w") as out:
        report = perform(BenchPlan(dsn, frozenset(names), TINY, quick=True, lines=lines), out)
    sys.stdout.write(json.dumps(report.plain()))
    sys.exit(report.code)


if __name__ == "__main__":
    main()
