"""What happened lately, in words: told by who does something, or seen by comparing one sight of the cluster with the next."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partbox.demo.cluster import Process, Sight
from partbox.demo.roster import Roster

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
        """Nothing is on the move."""
        return self._began is None and self._last is not None and self._last.settled

    def moved(self, now: float, seconds: float) -> frozenset[int]:
        """The partitions that changed owner in these last seconds."""
        return frozenset(partition for partition, at in self._moved_at.items() if now - at < seconds)

    def watch(self, sight: Sight) -> None:
        """Compare with the last sight, and say what is new."""
        self._roster.meet(process.pid for process in sight.processes)
        if self._last is not None:
            self._newcomers(sight, self._last.pids)
            self._missing(sight, self._last.processes)
            self._moves(sight, self._last.epochs)
            self._settle(sight)
        self._last = sight

    def _newcomers(self, sight: Sight, known: set[int]) -> None:
        for process in sight.processes:
            if process.pid not in known:
                self.joins += 1
                self._disturb(sight.at - process.age, process.assigned)
                self.say(f"{self.name(process.pid)} joined: {_partitions(process.assigned)} move to it")

    def _missing(self, sight: Sight, known: Sequence[Process]) -> None:
        for process in known:
            if process.pid not in sight.pids | self._gone:
                self._disturb(self._last.at if self._last else sight.at, process.owned)
                self.say(f"{self.name(process.pid)} is gone, nobody asked it to: its "
                         f"{_partitions(process.owned)} go to others")

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
