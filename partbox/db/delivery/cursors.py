"""The partitions of one instance: read, claim, save."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import orjson

from partbox.db.blocking import array_literal, fetch
from partbox.db.delivery import idle_check, proof, server_incarnation
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.sql import Conn, records
from partbox.protocol.bell import flag_seconds_left
from partbox.protocol.rows import CursorSave, OwnedPartition, SaveEntry, TickPartition

OperatorBounds = tuple[float | None, float | None]
"""Calls that may start in a second, and run at once; infinity: any number, None: as the handler declares."""

IDLE_CHECK_COLUMNS = (
    len(IdleCheck._fields) + 4
)  # columns of a tick that are a look: a fence comes as three, and the log is one


class TickResult(NamedTuple):
    """A look at the log; my partitions, None if they are what their `digest` said before; of those that I own and
    that have a parked row which is due some time, the seconds until the first one is; and, with the partitions, the
    bounds that operators have set by handler: see the table `handler_limit`."""

    look: IdleCheck
    digest: int | None
    partitions: list[TickPartition] | None
    dues: dict[int, float]
    limits: dict[str, OperatorBounds]


def tick(
    conn: Conn, schema: str, subscription: str, me: UUID, listed: Iterable[int], known: int | None = None
) -> TickResult:
    """An idle check and the partitions that this instance owns or is assigned; `known` is their digest as
    it was before."""
    values = {"subscription": subscription, "me": me, "known": known, **idle_check.parameters(conn, listed)}
    (row,) = fetch(conn, "tick", schema, values)
    digest, is_known = row[IDLE_CHECK_COLUMNS : IDLE_CHECK_COLUMNS + 2]
    # Nothing: no array.
    numbers, seconds, *columns, handlers, rates, at_once = [column or [] for column in row[IDLE_CHECK_COLUMNS + 2 :]]
    partitions = None if is_known else [*map(TickPartition, *columns)]
    dues, bounds = dict(zip(numbers, seconds, strict=True)), zip(rates, at_once, strict=True)
    limits = dict(zip(handlers, bounds, strict=True))
    return TickResult(idle_check.result(conn, row[:IDLE_CHECK_COLUMNS]), digest, partitions, dues, limits)


def calm(conn: Conn, schema: str, subscription: str, me: UUID, known: int, before: IdleCheck) -> IdleCheck | None:
    """The look `before` anew, by a cheaper statement, if nothing has changed since; None: something may have.

    `before` listed no transaction, and `known` is the digest of my partitions as they were then.
    """
    values = {
        "subscription": subscription,
        "me": me,
        "known": known,
        "drawn": before.fence.drawn,
        **idle_check.parameters(conn),
    }
    ((ahead, is_still, alive, log),) = fetch(conn, "calm", schema, values)
    idle_check.check(conn, alive, log)
    return before._replace(ended=False, up=flag_seconds_left(ahead)) if is_still else None


def claim(conn: Conn, schema: str, subscription: str, me: UUID) -> list[OwnedPartition]:
    """Claim every free partition assigned to this instance; none if its instance row is gone."""
    return records(conn, OwnedPartition, "claim", schema, subscription=subscription, me=me)


def take_up(conn: Conn, schema: str, subscription: str, me: UUID, epochs: Mapping[int, int]) -> list[OwnedPartition]:
    """Raise the epochs of these partitions for a new session; returns those that are owned under the given epochs.

    A save or a take-up that an earlier session sent and gave up on is refused if it arrives after this.
    """
    of = {"partitions": list(epochs), "epochs": list(epochs.values())}
    return records(conn, OwnedPartition, "take_up", schema, subscription=subscription, me=me, **of)


def save(  # so many parameters: an object of them would be made for every page
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
    """Save everything if every partition is still owned under its epoch, else nothing.

    Return the partitions that are still owned, and the seconds that the server took. NewIncarnationError if the server
    is in another incarnation than the session: nothing is saved, and the connection is closed. `session`: a connection
    of the session, if `conn` is an application's.
    """
    values = save_values(session or conn, subscription, me, savings, parks, done_ids) | {"durable": durable}
    ((mine, took, same),) = fetch(conn, "save", schema, values)
    server_incarnation.check(conn, same)
    return set(mine or ()), took


def save_values(
    session: Conn,
    subscription: str,
    me: UUID,
    savings: Sequence[CursorSave],
    parks: Sequence[SaveEntry],
    done_ids: Sequence[int],
) -> dict[str, object]:
    """The values of a save in the session of this connection, but for `durable`."""
    sequence, value = server_incarnation.of(session)
    return {
        "subscription": subscription,
        "me": me,
        **_saved(savings),
        "parks": orjson.dumps([each.to_json() for each in parks]).decode() if parks else None,
        "done_ids": array_literal(done_ids),
        "life": sequence,
        "value": value,
        "tables": proof.of(session).tables,
    }


def _saved(savings: Sequence[CursorSave]) -> dict[str, str]:
    """The cursors to save as arrays; a snapshot that several share travels once."""
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
