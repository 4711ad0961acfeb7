"""Names of nodes: two that run on one host under one name are told apart."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID


class Process(NamedTuple):
    """A process with the name of its node, the node's supervisor (None of an older version), and its age in seconds."""

    node: str
    supervisor: UUID | None
    age: float


def names(processes: Sequence[Process]) -> list[str]:
    """The name of each one's node: "web-1", and "web-1 (2)" for another of that name that was started later."""
    started: dict[tuple[str, UUID | None], float] = {}
    for each in processes:
        started[each[:2]] = max(each.age, started.get(each[:2], each.age))
    found: dict[tuple[str, UUID | None], str] = {}
    numbers: dict[str, int] = {}
    for node, supervisor in sorted(started, key=lambda one: (-started[one], str(one[1]))):
        number = numbers[node] = numbers.get(node, 0) + 1
        found[node, supervisor] = node if number == 1 else f"{node} ({number})"
    return [found[each[:2]] for each in processes]
