"""What happened in a subscription, in words: found by comparing two looks at it."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from uuid import UUID

from partbox.dashboard.faces import Face
from partbox.dashboard.texts import cut
from partbox.db.stats import Cluster, Instance

KEPT = 40


@dataclass(frozen=True, slots=True)
class Happening:
    """`number` goes up by one with each; `at` is the database's time; `kind` is joined, gone, leaves, moved or said."""

    number: int
    at: datetime
    kind: str
    text: str


class News:
    """The last happenings, the newest last."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._last: Cluster | None = None
        self._faces: Mapping[UUID, Face] = {}
        self.happenings: deque[Happening] = deque(maxlen=KEPT)

    def watch(self, cluster: Cluster, faces: Mapping[UUID, Face], at: datetime) -> None:
        """Compare with the last look; nothing is new at the first."""
        known = {**self._faces, **faces}
        if self._last is not None:
            for kind, text in changes(self._last, cluster, known):
                self.happenings.append(Happening(next(self._numbers), at, kind, text))
        self._last, self._faces = cluster, faces


def changes(before: Cluster, after: Cluster, faces: Mapping[UUID, Face]) -> Iterator[tuple[str, str]]:
    """`(kind, text)` of what is different."""
    was = {each.instance_id: each for each in before.instances}
    now = {each.instance_id: each for each in after.instances}
    if before.paused != after.paused:
        yield "said", "the subscription was paused" if after.paused else "the subscription was resumed"
    for id, instance in now.items():
        if id not in was:
            yield "joined", f"{_name(instance, faces)} joined"
        elif instance.draining and not was[id].draining:
            yield "leaves", f"{_name(instance, faces)} leaves"
    for id, instance in was.items():
        if id not in now:
            owned = sum(partition.owner == id for partition in before.partitions)
            rest = f" with {_partitions(owned)} still its own" if owned else ""
            yield "gone", f"{_name(instance, faces)} is gone{rest}"
    yield from _moves(before, after, faces)


def _moves(before: Cluster, after: Cluster, faces: Mapping[UUID, Face]) -> Iterator[tuple[str, str]]:
    """By whom partitions were claimed; the last owner is said only where it was seen."""
    claims = Counter(
        (old.owner if old.owner != new.owner else None, new.owner)
        for old, new in zip(before.partitions, after.partitions, strict=False)
        if new.epoch != old.epoch and new.owner is not None
    )
    for (old, new), number in claims.items():
        assert new is not None
        source = f" from {faces[old].letter}" if old is not None and old in faces else ""
        target = faces[new].letter if new in faces else "a process that is gone"
        yield "moved", f"{_partitions(number)} moved{source} to {target}"


def _name(instance: Instance, faces: Mapping[UUID, Face]) -> str:
    return f"process {faces[instance.instance_id].letter} (pid {instance.pid} on {cut(instance.node, 40)})"


def _partitions(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"
