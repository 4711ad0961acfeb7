"""What happened lately, in words: told by who did it, or found by comparing two sights of the cluster."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partbox.demo.cluster import Process, Sight
from partbox.terminal.roster import Roster

KEPT = 50


@dataclass(frozen=True, slots=True)
class Happening:
    """`at` is local time of day."""

    at: str
    text: str


class Chronicle:
    """Counts `joins`, `leaves` and `moves` (partitions that changed owner); `tell` hears of everything."""

    def __init__(self, roster: Roster, tell: Callable[[Happening], None]) -> None:
        self._roster = roster
        self._tell = tell
        self._last: Sight | None = None
        self._met: set[int] = set()
        self._gone: set[int] = set()
        self._began: float | None = None
        self._moved_at: dict[int, float] = {}
        self.happenings: deque[Happening] = deque(maxlen=KEPT)
        self.joins = self.leaves = self.moves = 0

    def say(self, text: str) -> None:
        """Something happened just now."""
        happening = Happening(time.strftime("%H:%M:%S"), text)
        self.happenings.append(happening)
        self._tell(happening)

    def begin(self, text: str) -> None:
        """Say it, and count from here."""
        self.joins = self.leaves = self.moves = 0
        self.say(text)

    def name(self, pid: int) -> str:
        """How to call a process."""
        return f"process {self._roster.face(pid).letter} (pid {pid})"

    def killed(self, process: Process) -> None:
        """It was killed just now."""
        self._gone.add(process.pid)
        self._disturb(time.monotonic(), process.owned)
        self.say(f"killed {self.name(process.pid)}: its {_partitions(process.owned)} go to others")

    def sent_away(self, process: Process) -> None:
        """It was asked to leave just now."""
        self.leaves += 1
        self._gone.add(process.pid)
        self._disturb(time.monotonic(), process.owned)
        self.say(f"{self.name(process.pid)} leaves: its {_partitions(process.owned)} go to others")

    @property
    def calm(self) -> bool:
        """Nothing is on the move, and nobody is about to join."""
        last = self._last
        return self._began is None and last is not None and last.settled and last.pids <= self._met

    def moved(self, now: float, seconds: float) -> frozenset[int]:
        """The partitions that changed owner in these last seconds."""
        return frozenset(partition for partition, at in self._moved_at.items() if now - at < seconds)

    def watch(self, sight: Sight) -> None:
        """Compare with the last sight, and say what is new."""
        self._roster.meet(process.pid for process in sight.processes)
        self._newcomers(sight)
        if self._last is not None:
            self._missing(sight, self._last)
            self._moves(sight, self._last.epochs)
            self._settle(sight)
        self._last = sight

    def _newcomers(self, sight: Sight) -> None:
        """Whoever has just got its first share."""
        for process in sight.processes:
            if process.assigned and process.pid not in self._met:
                self._met.add(process.pid)
                self.joins += 1
                self._disturb(sight.at - process.age, process.assigned)
                self.say(f"{self.name(process.pid)} joined: {_partitions(process.assigned)} move to it")

    def _missing(self, sight: Sight, before: Sight) -> None:
        for process in before.processes:
            if process.pid not in sight.pids | self._gone:
                self._disturb(before.at, process.owned)
                self.say(
                    f"{self.name(process.pid)} is gone, nobody asked it to: its "
                    f"{_partitions(process.owned)} go to others"
                )

    def _moves(self, sight: Sight, before: Sequence[int]) -> None:
        moved = [p for p, (old, new) in enumerate(zip(before, sight.epochs, strict=True)) if old != new]
        self.moves += len(moved)
        self._moved_at.update(dict.fromkeys(moved, sight.at))

    def _disturb(self, at: float, partitions: int) -> None:
        if partitions and self._began is None:
            self._began = at

    def _settle(self, sight: Sight) -> None:
        """The last claim ends it: all are owned as planned, and something was claimed since it began."""
        if self._began is not None and sight.settled and sight.claimed > self._began:
            self.say(f"rebalanced in {sight.claimed - self._began:.1f} s")
            self._began = None


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
