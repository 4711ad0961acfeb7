"""The assignment of partitions to instances: equal shares, as few moves as possible.

A partition whose assignee is among the instances stays with it unless that instance holds more than its share. With
n partitions and m instances n mod m shares are one larger than the others; they go to the instances that hold most
already, because each of them then gives one partition less away.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

Assignees = Sequence[UUID | None]


def assign(partitions: Assignees, instances: Collection[UUID]) -> list[UUID | None]:
    """The assignee of each partition; `partitions` holds the present one at the index of the partition.

    Shares differ by at most one, the number of moves is the least possible, the order of `instances` does not
    matter, and the result of a result is itself. Without instances everything is None.
    """
    if not instances:
        return [None] * len(partitions)
    room = _share_room(partitions, instances)
    kept: list[UUID | None] = []
    for assignee in partitions:
        stays = assignee is not None and room[assignee] > 0
        kept.append(assignee if stays else None)
        if stays:
            room[assignee] -= 1
    takers = _spread_takers(room)
    return [next(takers) if assignee is None else assignee for assignee in kept]


def needs_plan(partitions: Assignees, instances: Collection[UUID]) -> bool:
    """True if a partition lacks a living assignee, or shares differ by more than one.

    Never "differs from what `assign` would say": two versions of it in a rolling deploy would undo each other.
    """
    if not instances:
        return any(assignee is not None for assignee in partitions)
    held = _count_owned(partitions, instances)
    return sum(held.values()) < len(partitions) or max(held.values()) - min(held.values()) > 1


def _count_owned(partitions: Assignees, instances: Collection[UUID]) -> dict[UUID, int]:
    counts = Counter(partitions)
    return {instance: counts[instance] for instance in instances}


def _share_room(partitions: Assignees, instances: Collection[UUID]) -> Counter[UUID | None]:
    held = _count_owned(partitions, instances)
    fullest_first = sorted(held, key=lambda instance: (-held[instance], instance))
    share, larger = divmod(len(partitions), len(held))
    return Counter({instance: share + (place < larger) for place, instance in enumerate(fullest_first)})


def _spread_takers(room: Counter[UUID | None]) -> Iterator[UUID]:
    """Each instance as often as it has room, in turns, so that neighbouring partitions spread."""
    left = sorted(instance for instance, free in room.items() if instance and free > 0)
    while left:
        yield from left
        room.subtract(left)
        left = [instance for instance in left if room[instance] > 0]
