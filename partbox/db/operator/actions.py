"""The acts of operators, each noted in its own statement; see `sql/queries/actions.sql`.

A note that cannot be written, for want of a right or because a trigger keeps the row out, refuses the act: nobody
changes anything unseen. Whatever changes nothing leaves no note.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from getpass import getuser
from os import getpid
from typing import Any

import orjson
from psycopg.rows import tuple_row

from partbox.db.sql import Conn, one_row, records, wrap_query
from partbox.errors import PartboxError
from partbox.text.printing import printable_line
from partbox.text.secrets import masked_fields

VERBS = {
    "dead": ("replay", "discard"),
    "blocked": ("retry", "skip"),
    "subscription": ("create", "pause", "resume", "replay", "drop"),
    "limit": ("set", "reset"),
    "archive": ("begin", "end"),
}
ACTION_WORDS = (
    "cancel",
    "import",
    "purge",
    "rebase",
    *(f"{noun} {verb}" for noun, verbs in VERBS.items() for verb in verbs),
)

_identity: ContextVar[str | None] = ContextVar("identity", default=None)


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """An act of an operator that changed something: `who` did what, and when, by the database's clock.

    `action` is the words of the command, such as "dead replay". `target` says on what: records by their
    `record_ids`, an aggregate, filters, a reason. `count`: of records, partitions or rows that were changed.
    """

    id: int
    at: datetime
    who: str
    action: str
    subscription: str | None
    target: dict[str, Any]
    count: int


@contextmanager
def acting_as(identity: str | None) -> Iterator[None]:
    """While it lasts, in this thread or task, `identity` is who acts: the user of a program that embeds this one.

    None: the user of this process, as before. PartboxError for what is no text, or an empty one. Long ones are cut,
    and what is not printable in them is escaped.
    """
    if identity is not None and not (isinstance(identity, str) and identity.strip()):
        raise PartboxError(f"identity {identity!r} must be a text that names who acts, such as 'alice@example.com'")
    token = _identity.set(identity and printable_line(identity))
    try:
        yield
    finally:
        _identity.reset(token)


def current_actor() -> str:
    """The identity that acts, else the user and the host of this process."""
    return _identity.get() or printable_line(f"{_user()}@{socket.gethostname()}")


def _user() -> str:
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in a container
        return f"process {getpid()}"


def act(conn: Conn, query: str, schema: str, target: Mapping[str, object], **values: object) -> list[tuple[Any, ...]]:
    """The rows of the act that this query is, which has a column `changed`; noted if it changed anything."""
    note_values = action_values(query.replace("_", " "), target)
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(wrap_query("acted", query, schema), note_values | values).fetchall()


@dataclass(slots=True)
class LongAction:
    """An act of several statements, or transactions: one note, which counts what each of them has changed."""

    schema: str
    action: str
    target: Mapping[str, object]
    _id: int | None = None

    def count(self, conn: Conn, changed: int) -> None:
        """Count it; in the transaction that changes it, both are there or neither."""
        if changed:
            values = action_values(self.action, self.target) | {"changed": changed, "id": self._id}
            (self._id,) = one_row(conn, "action_counted", self.schema, **values)


def action_values(action: str, target: Mapping[str, object]) -> dict[str, object]:
    """The values of the query `action_values`."""
    return {"who": current_actor(), "action": action, "target": orjson.dumps(target).decode(), "subscription": None}


def list_actions(conn: Conn, schema: str, limit: int, **asked: object) -> list[OperatorAction]:
    """At most `limit` actions, the newest first."""
    return records(conn, _build_action, "actions_list", schema, limit=limit, **asked)


def _build_action(*row: Any) -> OperatorAction:
    id, at, who, action, subscription, target, count = row
    return OperatorAction(id, at, who, action, subscription, masked_fields(orjson.loads(target)), count)
