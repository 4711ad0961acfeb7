"""The sizes of a run: events, rounds and seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class GrowthSizes:  # one field for each size of a line
    """Sizes of the growth lines. Times are in seconds."""

    records: int  # in the grown log
    segment: int  # ids per segment of the done records
    turns: int  # above the done records, and as many without
    cycles: int  # of traffic per turn
    instances: tuple[int, ...]  # numbers of idle instances at which the CPU is read
    settling: float  # before each reading
    standing: float  # of each reading
    burst: int  # events in one transaction
    large: int  # events with large payloads
    payload: int  # bytes of a large payload
    publishers: int  # at the same time
    crowded: float  # of a turn of them
    open_transactions: tuple[int, int]  # beside a drain
    beside: int  # events of that drain, of a purge, and of the log that commands look at
    handlers: int  # of one supervisor
    troubled: int  # events that are delayed, fail or die
    behind: int  # events that a subscription lags
    subscriptions: int  # of one log
    commanded: int  # subscriptions that commands look at
    purged: int  # subscriptions beside a purge
    rebalances: tuple[tuple[int, int], ...]  # numbers of processes, to and fro
    changes: int  # each way
    beat: float  # between two events of a partition
    starts: tuple[int, int, int]  # nodes and processes of each that start together, and processes one by one


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the lines. Times are in seconds."""

    events: int  # of the backlog
    textbook: int  # events of the backlogs of the textbook outbox and of PgQ
    rounds: int  # of most comparisons
    pairs: int  # rounds of comparisons between shapes
    waits: float  # seconds of waiting, per slot of concurrency
    pages: int  # of 10,000 events by publish_many
    singles: int  # events, each in its own transaction
    turns: int  # with the bell on, and as many off
    turn: float  # of one such turn
    latency: Mapping[int, float]  # seconds by rate per second
    idle: float  # of watching an idle process
    open: float  # beside an open transaction
    done: int  # records between two backlogs
    memory: int  # events of the backlog
    load: int  # events per second while processes come and go
    lease: float  # of the processes that are killed
    growth: GrowthSizes
    calm: float = 2.0  # until sleeps are at their longest and statistics are flushed


FULL: Final = Sizes(
    events=300_000,
    textbook=60_000,
    rounds=5,
    pairs=10,
    # A drain takes another quarter of a second, before the first event and after the last.
    waits=5.0,
    pages=5,
    singles=2_000,
    turns=41,
    turn=0.3,
    latency=MappingProxyType({1: 60.0, 100: 30.0, 1_000: 20.0}),
    idle=40.0,
    open=60.0,
    # With three backlogs, this stays just below ten million, where the first segment of the log ends.
    done=9_000_000,
    memory=1_000_000,
    load=500,
    lease=6.0,
    growth=GrowthSizes(
        records=20_000_000,
        segment=2_000_000,
        # 40 turns cannot tell 1.04 from 1.06.
        turns=160,
        cycles=50,
        instances=(1, 10, 50, 100, 200),
        # Each instance saves cursors that have only moved with the horizon once a minute. The first time must be over.
        settling=65.0,
        standing=60.0,
        burst=1_000_000,
        large=300,
        payload=1_000_000,
        publishers=500,
        crowded=3.0,
        open_transactions=(1_000, 5_000),
        beside=200_000,
        handlers=10_000,
        troubled=100_000,
        behind=1_000_000,
        subscriptions=50,
        commanded=200,
        purged=1_000,
        rebalances=((2, 3), (3, 4), (7, 8), (16, 32)),
        changes=10,
        beat=0.04,
        starts=(10, 20, 10),
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
        open_transactions=(100, 500),
        beside=20_000,
        handlers=1_000,
        troubled=5_000,
        behind=40_000,
        subscriptions=10,
        commanded=20,
        purged=50,
        rebalances=((2, 3),),
        changes=2,
        beat=0.04,
        starts=(2, 3, 2),
    ),
    calm=0.7,
)
