"""Read the partitions of a process, claim them, and save their cursors. Every write is fenced: a partition counts only
with the owner and the epoch under which this process holds it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import orjson

from partbox.db.blocking import array_literal, fetch
from partbox.db.delivery import idle_check, proof, server_incarnation
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.sql import Conn, fetch_records
from partbox.protocol.bell import flag_seconds_left
from partbox.protocol.limit_addresses import LimitAddress, LimitKind
from partbox.protocol.rows import CursorSave, OwnedPartition, SaveEntry, TickPartition

OperatorBounds = tuple[float | None, float | None]
"""Calls that may start in a second, and calls that may run at once.

Infinity: no limit. None: the limit that the handler declares.
"""

# The columns of a tick that belong to the idle check. A fence comes as three, and the server's life and the log are two
# more.
IDLE_CHECK_COLUMNS = len(IdleCheck._fields) + 4


class TickResult(NamedTuple):
    """The result of a worker's periodic query for new events, its partitions, due retries and handler limits."""

    idle_check: IdleCheck  # the idle check
    digest: int | None  # a digest of the partitions of this instance
    partitions: list[TickPartition] | None  # None if the digest is the known one
    # For each owned partition with a parked row that has a due time, the seconds until the first is due.
    due_times: dict[int, float]
    # Limits that operators have set (tables `handler_limit` and `pause`). Read with the partitions.
    limits: dict[LimitAddress, OperatorBounds]


def run_tick(
    conn: Conn, schema: str, subscription: str, me: UUID, open_xids: Iterable[int], known: int | None = None
) -> TickResult:
    """Query in one statement whether new events may exist and which partitions belong to this worker."""
    # A partition belongs to the worker that owns it or is assigned it.
    # `known` is the digest of the partitions in the last tick. `open_xids` holds the transactions of the last snapshot
    # (see `idle_check`).
    values = {"subscription": subscription, "me": me, "known": known, **idle_check.build_parameters(conn, open_xids)}
    (row,) = fetch(conn, "tick", schema, values)
    digest, is_known = row[IDLE_CHECK_COLUMNS : IDLE_CHECK_COLUMNS + 2]
    # An empty result is a null instead of an array.
    numbers, seconds, *columns, kinds, handlers, limit_values, rates, at_once = [
        column or [] for column in row[IDLE_CHECK_COLUMNS + 2 :]
    ]
    partitions = None if is_known else [*map(TickPartition, *columns)]
    dues, bounds = dict(zip(numbers, seconds, strict=True)), zip(rates, at_once, strict=True)
    limits = dict(zip(map(LimitAddress, map(LimitKind, kinds), handlers, limit_values), bounds, strict=True))
    return TickResult(idle_check.build_result(conn, row[:IDLE_CHECK_COLUMNS]), digest, partitions, dues, limits)


def recheck_idle(
    conn: Conn, schema: str, subscription: str, me: UUID, known: int, before: IdleCheck
) -> IdleCheck | None:
    """Return an updated idle check if nothing has changed since the check `before`, otherwise None."""
    # The check is cheap.
    # Nothing has changed if no id was drawn, the digest of the partitions is `known`, and no parked row has a due time.
    # `before` must have had no listed transaction. The statement takes a third of the time of a tick.
    values = {
        "subscription": subscription,
        "me": me,
        "known": known,
        "drawn": before.fence.drawn_id,
        **idle_check.build_parameters(conn),
    }
    ((ahead, is_still, alive, log),) = fetch(conn, "calm", schema, values)
    idle_check.check_unchanged(conn, alive, log)
    return before._replace(has_ended=False, flag_up_for=flag_seconds_left(ahead)) if is_still else None


def claim_partitions(conn: Conn, schema: str, subscription: str, me: UUID) -> list[OwnedPartition]:
    """Take ownership of the free partitions that are assigned to this worker instance. Return the new ones."""
    # The list is empty if the row of the instance is gone.
    return fetch_records(conn, OwnedPartition, "claim", schema, subscription=subscription, me=me)


def take_up_partitions(
    conn: Conn, schema: str, subscription: str, me: UUID, epochs: Mapping[int, int]
) -> list[OwnedPartition]:
    """Carry the ownership of partitions over to a new database session. Return the partitions that are still owned."""
    # The ownership must be under the given `epochs`. The epochs are raised, so that the database refuses a late save or
    # take-up from an earlier session that gave up on it.
    of = {"partitions": list(epochs), "epochs": list(epochs.values())}
    return fetch_records(conn, OwnedPartition, "take_up", schema, subscription=subscription, me=me, **of)


# The parameters are many because an object of them would be made for every page.
def save(
    conn: Conn,
    schema: str,
    subscription: str,
    me: UUID,
    savings: Sequence[CursorSave],
    parks: Sequence[SaveEntry] = (),
    done_ids: Sequence[int] = (),
    *,
    durable: bool = False,
    session: Conn | None = None,
) -> tuple[set[int], float]:
    """Save how far this worker has read each of its partitions, or nothing if it has lost one of them.

    Return the partitions that are still owned, and the seconds that the server took. `durable` waits for the disk.
    `session` is a connection of the session, if `conn` is an application's. Raise `NewIncarnationError`, with nothing
    saved and the connection closed, if the server crashed or was replaced since the session began."""
    # The save covers cursors, parked rows (events set aside) and finished rows. The instance must still own every
    # partition under its epoch.
    values = build_save_values(session or conn, subscription, me, savings, parks, done_ids) | {"durable": durable}
    ((mine, took, same),) = fetch(conn, "save", schema, values)
    server_incarnation.check_incarnation(conn, same)
    return set(mine or ()), took


def build_save_values(
    session: Conn,
    subscription: str,
    me: UUID,
    savings: Sequence[CursorSave],
    parks: Sequence[SaveEntry],
    done_ids: Sequence[int],
) -> dict[str, object]:
    """Return the query parameters for saving how far a worker has read its partitions."""
    # The parameter `durable` is not among them. The server and the tables are identified as they were when `session`
    # began.
    sequence, value = server_incarnation.incarnation_of(session)
    return {
        "subscription": subscription,
        "me": me,
        **_build_cursor_values(savings),
        "parks": orjson.dumps([each.to_json() for each in parks]).decode() if parks else None,
        "done_ids": array_literal(done_ids),
        "life": sequence,
        "value": value,
        "tables": proof.baseline_of(session).table_oids,
    }


def _build_cursor_values(savings: Sequence[CursorSave]) -> dict[str, str]:
    # The cursors become arrays of query parameters.
    # Each distinct snapshot is sent once. The cursors refer to it by its number, from 1.
    snapshots = list(dict.fromkeys(saving.snapshot for saving in savings if saving.snapshot is not None))
    numbers = {snapshot: number for number, snapshot in enumerate(snapshots, start=1)}
    partitions, epochs, _, last_ids, floors, release = map(array_literal, zip(*savings, strict=True))
    return {
        "partitions": partitions,
        "epochs": epochs,
        "snapshot_no": array_literal(numbers.get(saving.snapshot or "") for saving in savings),
        "last_ids": last_ids,
        "floors": floors,
        "release": release,
        "snapshots": array_literal(snapshots),
    }
