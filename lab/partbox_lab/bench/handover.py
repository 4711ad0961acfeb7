"""The pauses that partitions saw while processes came or went. Pure: from what was sent and what was delivered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from partbox_lab.bench.handlers import Noted
from partbox_lab.bench.rounds import quantile

PARTITIONS: Final = 256
SHARES: Final = (0.5, 0.95, 0.99, 1.0)
NANOSECONDS: Final = 1e9


class Change(NamedTuple):
    """A change of the processes: when it began, and when all was asked for that it is to bring; until when it was
    watched (monotonic ns). The time before it, as long as it took, is what it is compared with."""

    began: int
    complete: int
    ended: int

    @property
    def before(self) -> int:
        return self.began - (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class Pauses:
    """Of one change or several: seconds until all partitions ran where they were to, one a change; the longest delay of
    an event of each partition that moved, of each that did not, and of each in as long a time before."""

    settled: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    unmoved: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)

    def add(self, other: "Pauses") -> None:
        """Count those of another change too."""
        self.settled.extend(other.settled)
        self.moved.extend(other.moved)
        self.unmoved.extend(other.unmoved)
        self.before.extend(other.before)


def judge(notes: Iterable[Noted], beats: Sequence[int], change: Change) -> Pauses:
    """The pauses of one change. What came a second time was delivered the first time."""
    owner: dict[int, int] = {}
    new: dict[int, tuple[int, int]] = {}  # process and time of the first delivery by who had the partition last
    during: dict[int, float] = {}
    before: dict[int, float] = {}
    known: set[int] = set()
    for note in notes:
        if note.at < change.began:
            owner[note.partition] = note.pid
        elif new.get(note.partition, (owner.get(note.partition), 0))[0] != note.pid:
            new[note.partition] = note.pid, note.at
        sent = beats[note.number // PARTITIONS]
        if note.number not in known and change.before <= sent < change.ended:
            known.add(note.number)
            side = before if sent < change.began else during
            side[note.partition] = max(side.get(note.partition, 0.0), (note.at - sent) / NANOSECONDS)
    moved = {number for number, (pid, _) in new.items() if owner.get(number) != pid}
    running = max((at for _, at in new.values()), default=change.complete)
    return Pauses(
        [max(0, running - change.complete) / NANOSECONDS],
        [during[number] for number in sorted(moved & during.keys())],
        [during[number] for number in sorted(during.keys() - moved)],
        [before[number] for number in sorted(before)],
    )


def distribution(values: Sequence[float]) -> list[float]:
    """Median, p95, p99 and maximum."""
    return [max(values) if share == 1.0 else quantile(values, share) for share in SHARES]


def told(values: Mapping[str, Sequence[float]], unit: str, factor: float = 1.0) -> str:
    """Distributions as people read them, each with its number of values."""
    return "; ".join(
        f"{name} {' / '.join(f'{factor * each:,.3g}' for each in distribution(found))} {unit} ({len(found):,})"
        for name, found in values.items()
        if found
    )
