"""The faults of a run and their times: a pure function of seed, length, and faults."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partbox_lab.chaos.faults import FAULTS

FIRST = 1.0  # seconds until the first fault
# Nodes need time to start, and to have something to lose.
PAUSE = (1.0, 4.0)  # seconds between two faults, from and to
LAST = 1.0  # seconds before the end in which no fault begins


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault to carry out. `who` and `how`, from 0 to below 1, choose its target among the candidates of that time."""

    at: float  # seconds from the start
    fault: str
    lasts: float  # seconds
    who: float
    how: float


def schedule(seed: int, seconds: float, faults: Sequence[str]) -> tuple[ScheduledFault, ...]:
    """Return the faults of a run, in the order of time. Each fault comes once before any repeats."""
    return tuple(_steps(random.Random(f"partbox chaos {seed}"), seconds, sorted(faults)))


def _steps(dice: random.Random, seconds: float, faults: list[str]) -> Iterator[ScheduledFault]:
    turn: list[str] = []
    at = FIRST
    while faults and at < seconds - LAST:
        if not turn:
            turn = dice.sample(faults, len(faults))
        fault = turn.pop()
        lasts = dice.uniform(*FAULTS[fault].lasts)
        yield ScheduledFault(round(at, 3), fault, round(lasts, 3), dice.random(), dice.random())
        at += dice.uniform(*PAUSE)
