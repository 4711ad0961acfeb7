"""The news of a subscription: the differences between two looks at it, and the last of what was told about them."""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Final
from uuid import UUID

from partbox.db.inspect.stats import Cluster, Instance
from partbox.text.wording import counted

KEPT: Final = 50


@dataclass(frozen=True, slots=True)
class Happening:
    """`number` goes up by one with each; `kind` is joined, gone, leaves, moved or said."""

    number: int
    at: datetime
    kind: str
    text: str


class News:
    """The last happenings, the newest last."""

    def __init__(self, kept: int = KEPT) -> None:
        self._numbers = count(1)
        self.happenings: deque[Happening] = deque(maxlen=kept)

    def add(self, text: str, kind: str = "said", at: datetime | None = None) -> Happening:
        """Add and return one more; default: it happened just now."""
        made = Happening(next(self._numbers), at or datetime.now(UTC), kind, text)
        self.happenings.append(made)
        return made


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two looks: processes by what became of them, `gone` with the partitions they still owned.

    `claims` has the old owner (None unless it lost the partition since) and the new one of each claimed partition.
    """

    joined: tuple[Instance, ...]
    leaving: tuple[Instance, ...]
    gone: tuple[tuple[Instance, int], ...]
    claims: dict[int, tuple[UUID | None, UUID | None]]


def changes(before: Cluster, after: Cluster) -> Changes:
    """Compare two looks at a subscription."""
    was = {each.instance_id: each for each in before.instances}
    now = {each.instance_id: each for each in after.instances}
    return Changes(
        joined=tuple(each for id, each in now.items() if id not in was),
        leaving=tuple(each for id, each in now.items() if id in was and each.draining and not was[id].draining),
        gone=tuple((each, owned(before, id)) for id, each in was.items() if id not in now),
        claims={
            new.partition: (old.owner if old.owner != new.owner else None, new.owner)
            for old, new in zip(before.partitions, after.partitions, strict=False)
            if new.epoch != old.epoch
        },
    )


def owned(cluster: Cluster, instance: UUID) -> int:
    """The number of partitions that this instance owns."""
    return sum(partition.owner == instance for partition in cluster.partitions)


def partitions(number: int) -> str:
    """ "1 partition", "64 partitions"."""
    return counted(number, "partition")
