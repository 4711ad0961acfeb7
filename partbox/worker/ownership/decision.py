"""The decision of a tick, by pure functions that compare the database's partitions with memory."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from partbox.db.delivery.cursors import OperatorBounds
from partbox.protocol.limit_addresses import LimitAddress, LimitKind
from partbox.protocol.limits import Limit, Rate
from partbox.protocol.rows import TickPartition
from partbox.worker.engine.claims import OwnedTenure
from partbox.worker.engine.partition import Tenure
from partbox.worker.engine.phase import Phase


class Decision(NamedTuple):
    """The changes to the partitions of this process that a check of the database has found necessary."""

    # The tenures (periods of ownership) in `lost_tenures` end, the `surplus_partitions` are drained, the
    # `unknown_partitions` are taken up with their epochs, and free partitions are claimed if `may_claim` is True.

    lost_tenures: list[Tenure]
    surplus_partitions: list[int]
    unknown_partitions: dict[int, int]
    may_claim: bool


def decide_changes(rows: Sequence[TickPartition], tenures: Sequence[OwnedTenure]) -> Decision:
    """Compare the partition owners in the database with memory, and return the changes to make."""
    # A `taken` tenure has another owner or none, a `surplus` partition is assigned to another process, and an `unknown`
    # partition is owned but not held in memory. `may_claim` means that an assigned partition is free.
    # Read `tenures` later than `rows`, as some may be released meanwhile.
    seen = {row.partition: row for row in rows}
    mine = [each for each in tenures if each.phase is not Phase.LOST]
    taken = [each.tenure for each in mine if not each.is_releasing and not _is_owned(each.tenure, seen)]
    kept = {each.tenure.number: each for each in mine if each.tenure not in taken}
    surplus = [number for number in kept if number in seen and not seen[number].is_assigned]
    unknown = {row.partition: row.epoch for row in rows if row.is_owned and row.partition not in kept}
    return Decision(taken, surplus, unknown, any(row.is_assigned and row.is_free for row in rows))


def find_stale(rows: Sequence[TickPartition], tenures: Sequence[OwnedTenure]) -> dict[int, int]:
    """Return the partitions whose rows of failed or waiting events must be loaded again, with the versions to load."""
    # These parked rows have changed since they were loaded.
    # The rows were changed by a command, or could not be loaded before.
    known = {
        each.tenure.number: each.parked_version for each in tenures if each.phase in (Phase.LOADING, Phase.RUNNING)
    }
    return {
        row.partition: row.parked_version
        for row in rows
        if row.is_owned and row.partition in known and known[row.partition] < row.parked_version
    }


def merge_limits(
    given: Mapping[LimitAddress, OperatorBounds], declared: Mapping[str, Limit]
) -> dict[LimitAddress, Limit]:
    """Return the limits of the objects in `given`, which combine operators' settings with the declared limits."""
    # The settings of operators override the declared limits of handlers.
    # None keeps a declared bound, and infinity removes it.
    found = {}
    for address, (rate, at_once) in given.items():
        of = declared.get(address.handler, Limit()) if address.kind is LimitKind.HANDLER else Limit()
        starts = of.rate if rate is None else None if rate == inf else Rate(rate)
        running = of.at_once if at_once is None else None if at_once == inf else int(at_once)
        found[address] = Limit(starts, running, of.by)
    return found


def _is_owned(tenure: Tenure, seen: dict[int, TickPartition]) -> bool:
    row = seen.get(tenure.number)
    return row is not None and row.is_owned and row.epoch == tenure.epoch
