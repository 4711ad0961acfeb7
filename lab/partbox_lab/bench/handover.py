"""Pauses of partitions while processes come or go, computed from the times of sending and of arrival. Pure code without
I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from partbox_lab.bench.handlers import Noted
from partbox_lab.bench.rounds import quantile

PARTITIONS: Final = 256
SHARES: Final = (0.5, 0.95, 0.99, 1.0)
NANOSECONDS: Final = 1e9


class Change(NamedTuple):
    """A change of the processes: its start, the moment when everything was requested, and the end of the observation,
    in nanoseconds of the monotonic clock."""

    began: int
    complete: int
    ended: int

    @property
    def before(self) -> int:
        """The start of an equally long period before the change, for comparison."""
        return self.began - (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class Pauses:
    """Delays in seconds, of one or more changes.

    - `settled`: per change, from its completion until every moved partition runs at its new owner
    - `moved`, `unmoved`: the longest delay of an event, per partition that moved and per partition that did not
    - `before`: the same per partition before the change"""

    settled: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    unmoved: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)

    def add(self, other: "Pauses") -> None:
        """Add the delays of another change."""
        self.settled.extend(other.settled)
        self.moved.extend(other.moved)
        self.unmoved.extend(other.unmoved)
        self.before.extend(other.before)


def judge(notes: Iterable[Noted], beats: Sequence[int], change: Change) -> Pauses:
    """Return the pauses of one change. A repeated delivery of an event does not count."""
    owner: dict[int, int] = {}
    # Process and time of the first delivery by the last owner of each partition.
    new: dict[int, tuple[int, int]] = {}
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
    """Return the median, 95th and 99th percentile, and maximum."""
    return [max(values) if share == 1.0 else quantile(values, share) for share in SHARES]


def told(values: Mapping[str, Sequence[float]], unit: str, factor: float = 1.0) -> str:
    """Return the distributions as text, each with its name and number of values. `factor` converts values to `unit`."""
    return "; ".join(
        f"{name} {' / '.join(f'{factor * each:,.3g}' for each in distribution(found))} {unit} ({len(found):,})"
        for name, found in values.items()
        if found
    )
