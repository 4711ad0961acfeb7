"""The sizes of a run: events, rounds, seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class GrowthSizes:
    """Sizes of the lines of growth.

    `records` done in segments of `segment` ids, above which `turns` of so many `cycles` of traffic are measured;
    `instances`: the numbers of idle ones at which the server's CPU is read, `standing` seconds each, once they have
    been there for `settling` seconds; events of a `burst`; `large` events with a `payload` of so many bytes;
    `publishers` at the same time, `crowded` seconds a turn; events that a subscription is `behind`; `subscriptions` of
    one log. `rebalances`: the numbers of processes between which it goes to and fro, with so many `changes` each way,
    while each partition gets an event every `beat` seconds.
    """

    records: int
    segment: int
    turns: int
    cycles: int
    instances: tuple[int, ...]
    settling: float
    standing: float
    burst: int
    large: int
    payload: int
    publishers: int
    crowded: float
    behind: int
    subscriptions: int
    rebalances: tuple[tuple[int, int], ...]
    changes: int
    beat: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of every line.

    `events` of a backlog that is drained, of which the textbook outbox gets `textbook`; `rounds` of each ratio, `pairs`
    of those between shapes of handlers, which wait for `waits` seconds where they wait;
    `pages` of 10,000 events by `publish_many`, `singles` each in a transaction of its own; `turns` of `turn` seconds
    for which many clients publish with the bell on, and as many with it off; `latency` seconds by rate
    (events per second); seconds of standing `idle`, and beside an `open` transaction; `done` records between two
    backlogs; `memory` events of the backlog over which memory is watched; `load` in events per second while processes
    come and go; the `lease` of the processes that are killed (seconds); `calm` seconds until a process without work
    sleeps as long as it ever does, and every session has told the server's statistics what it did; those of `growth`.
    """

    events: int
    textbook: int
    rounds: int
    pairs: int
    waits: float
    pages: int
    singles: int
    turns: int
    turn: float
    latency: Mapping[int, float]
    idle: float
    open: float
    done: int
    memory: int
    load: int
    lease: float
    growth: GrowthSizes
    calm: float = 2.0


FULL: Final = Sizes(
    events=300_000,
    textbook=60_000,
    rounds=5,
    pairs=10,
    waits=5.0,  # a drain takes a quarter of a second more, before the first event and after the last
    pages=5,
    singles=2_000,
    turns=41,
    turn=0.3,
    latency=MappingProxyType({1: 60.0, 100: 30.0, 1_000: 20.0}),
    idle=40.0,
    open=60.0,
    done=9_000_000,  # with three backlogs just below ten million, where the first segment of the log ends
    memory=1_000_000,
    load=500,
    lease=6.0,
    growth=GrowthSizes(
        records=20_000_000,
        segment=2_000_000,
        turns=160,  # in 40 one cannot tell 1.04 from 1.06
        cycles=50,
        instances=(1, 10, 50, 100, 200),
        settling=65.0,  # each saves a cursor that has only moved with the horizon once a minute: the first time is over
        standing=60.0,
        burst=1_000_000,
        large=300,
        payload=1_000_000,
        publishers=500,
        crowded=3.0,
        behind=1_000_000,
        subscriptions=50,
        rebalances=((2, 3), (3, 4), (7, 8), (16, 32)),
        changes=10,
        beat=0.04,
    ),
)
QUICK: Final = Sizes(
    events=30_000,
    textbook=5_000,
    rounds=1,
    pairs=1,
    waits=0.3,
    pages=2,
    singles=200,
    turns=1,
    turn=0.15,
    latency=MappingProxyType({1: 1.5, 100: 1.0, 1_000: 0.5}),
    idle=0.7,
    open=0.8,
    done=30_000,
    memory=30_000,
    load=200,
    lease=1.0,
    growth=GrowthSizes(
        records=200_000,
        segment=2_000_000,
        turns=4,
        cycles=10,
        instances=(1, 10, 40),
        settling=0.0,
        standing=3.0,
        burst=40_000,
        large=40,
        payload=1_000_000,
        publishers=100,
        crowded=0.5,
        behind=40_000,
        subscriptions=10,
        rebalances=((2, 3),),
        changes=2,
        beat=0.04,
    ),
    calm=0.7,
)
