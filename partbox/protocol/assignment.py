"""Assign the partitions of a subscription to worker processes in equal shares, with as few moves as possible."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

Assignees = Sequence[UUID | None]


def assign_partitions(partitions: Assignees, instances: Collection[UUID]) -> list[UUID | None]:
    """Assign partitions to worker processes in equal shares, with as few moves as possible."""
    # A partition stays with its assignee as long as the assignee is alive and holds no more than its share. With n
    # partitions and m instances, n mod m shares are larger by one. The larger shares go to the instances that already
    # hold the most partitions, because each such instance then gives away one partition less.
    # The present assignees are given by partition number, and the new ones are returned so. Shares differ by at most
    # one, and the number of moves is the smallest possible. The result does not depend on the order of `instances`, and
    # assigning the result again changes nothing. Without instances, every assignee is None.
    if not instances:
        return [None] * len(partitions)
    # A partition that moves is not delivered while its old owner drains it, so no partition moves without need.
    room = _compute_room(partitions, instances)
    kept: list[UUID | None] = []
    for assignee in partitions:
        stays = assignee is not None and room[assignee] > 0
        kept.append(assignee if stays else None)
        if stays:
            room[assignee] -= 1
    takers = _spread_takers(room)
    return [next(takers) if assignee is None else assignee for assignee in kept]


def needs_plan(partitions: Assignees, instances: Collection[UUID]) -> bool:
    """Return True if partitions must be reassigned, because one has no living worker process or the shares are
    uneven."""
    # Shares are uneven if the shares of two instances differ by more than one.
    # The partitions must then be assigned anew. A comparison with the result of `assign_partitions` would make two
    # versions of `assign_partitions` undo each other's plans for ever in a rolling deploy.
    if not instances:
        return any(assignee is not None for assignee in partitions)
    held = _count_owned(partitions, instances)
    return sum(held.values()) < len(partitions) or max(held.values()) - min(held.values()) > 1


def _count_owned(partitions: Assignees, instances: Collection[UUID]) -> dict[UUID, int]:
    counts = Counter(partitions)
    return {instance: counts[instance] for instance in instances}


def _compute_room(partitions: Assignees, instances: Collection[UUID]) -> Counter[UUID | None]:
    held = _count_owned(partitions, instances)
    fullest_first = sorted(held, key=lambda instance: (-held[instance], instance))
    share, larger = divmod(len(partitions), len(held))
    return Counter({instance: share + (place < larger) for place, instance in enumerate(fullest_first)})


def _spread_takers(room: Counter[UUID | None]) -> Iterator[UUID]:
    # The instances take turns, each as often as it has room for another partition.
    # Neighbouring partitions thereby go to different instances.
    left = sorted(instance for instance, free in room.items() if instance and free > 0)
    while left:
        yield from left
        room.subtract(left)
        left = [instance for instance in left if room[instance] > 0]
