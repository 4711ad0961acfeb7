"""The parts of the model's answers that need no state: loose rows in sum, a floor, and the records of one partition."""

from collections.abc import Sequence

from model_tables import ParkedLine
from server_log import Logged, ended, sees

from partbox.protocol.cursor import LateLimits, ReadRequest
from partbox.protocol.horizon import Page, Snapshot
from partbox.protocol.rows import LooseRows


def summarise_loose(rows: Sequence[ParkedLine]) -> LooseRows:
    waiting = [row for row in rows if row.waits]
    turns = sorted((row for row in waiting if row.waits_for_turn), key=lambda row: row.due_at or 0.0)
    return LooseRows(len(rows) - len(waiting), len(waiting), [row.record_id for row in turns])


def floor_at(base: Page, snapshot: Snapshot) -> int:
    over = zip(base.listed_bounds, ended(snapshot, [xid for xid, _ in base.listed_bounds]), strict=True)
    return min([base.settled_id, *(bound for (_, bound), is_over in over if is_over)])


def read_partition(ask: ReadRequest, floor: int, rows: Sequence[Logged], limits: LateLimits) -> list[Logged]:
    """The late and the new records of one partition."""
    since, until = (
        Snapshot.parse(ask.base_page.snapshot),
        Snapshot.parse(ask.until_snapshot) if ask.until_snapshot else None,
    )
    start = max(min(floor, ask.last_id), ask.after_id or 0)
    end = min(ask.last_id, start + limits.ids)
    mine = [row for row in rows if row.partition == ask.partition]
    late = [
        row
        for row in mine
        if start < row.id <= end and not sees(since, row.xid) and (until is None or sees(until, row.xid))
    ]
    new = [row for row in mine if row.id > ask.last_id]
    return late[: limits.records + 1] + new[: ask.room]
