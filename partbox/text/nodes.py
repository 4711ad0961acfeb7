"""Tells the nodes of a cluster apart: a host may have several supervisors, whose processes all have its name."""

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID


class NodeProcess(Protocol):
    """A worker process; `supervisor` is None of versions that do not say theirs."""

    @property
    def instance_id(self) -> UUID: ...
    @property
    def node(self) -> str: ...
    @property
    def supervisor(self) -> UUID | None: ...


def named(processes: Iterable[NodeProcess]) -> dict[UUID, str]:
    """The name of each process's node, by its instance id: "web-1", of the second supervisor there "web-1 (2)".

    Supervisors of one name are numbered in the order in which they were started, which their ids keep (UUIDv7); the
    number of one changes only when an earlier one is gone. Processes that do not say theirs are one node, the first.
    """
    found = list(processes)
    known: dict[str, set[UUID | None]] = {}
    for each in found:
        known.setdefault(each.node, set()).add(each.supervisor)
    ranked = {node: sorted(ids, key=lambda id: (id is not None, str(id))) for node, ids in known.items()}
    return {each.instance_id: _name(each.node, ranked[each.node].index(each.supervisor)) for each in found}


def _name(node: str, before: int) -> str:
    return f"{node} ({before + 1})" if before else node
