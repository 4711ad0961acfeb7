"""The faults of a run and their times: a pure function of seed, length and faults."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partbox_lab.chaos.faults import FAULTS

FIRST = 1.0  # seconds until the first fault
PAUSE = (1.0, 4.0)  # seconds from one fault to the next: nodes need some to start, and to have something to lose
LAST = 1.0  # seconds before the end after which no fault begins


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """Do `fault` at `at` seconds from the start, for `lasts` seconds.

    Its victim is not known before the run: `who` and `how`, from 0 to below 1, choose among the candidates then.
    """

    at: float
    fault: str
    lasts: float
    who: float
    how: float


def schedule(seed: int, seconds: float, faults: Sequence[str]) -> tuple[ScheduledFault, ...]:
    """The faults by time. Each has its turn before any repeats."""
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
