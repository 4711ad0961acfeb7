"""Record the actions of operators, each in the statement that performs it. See `sql/queries/actions.sql`.

If the record cannot be written, because a privilege is missing or a trigger drops the row, the action fails too. An
action that changes nothing is not recorded."""

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

from partbox.db.sql import Conn, fetch_one_row, fetch_records, wrap_query
from partbox.errors import PartboxError
from partbox.text.printing import shorten_line
from partbox.text.secrets import mask_fields, mask_optional

VERBS = {
    "dead": ("replay", "discard"),
    "blocked": ("retry", "skip"),
    "subscription": ("create", "pause", "resume", "replay", "drop"),
    "limit": ("set", "reset"),
    "archive": ("begin", "end"),
}
"""Verbs of operators by noun. Each is a query `noun_verb`."""
ACTION_WORDS = (
    "cancel",
    "import",
    "purge",
    "rebase",
    *(f"{noun} {verb}" for noun, verbs in VERBS.items() for verb in verbs),
)
"""All words by which actions are recorded."""

_identity: ContextVar[str | None] = ContextVar("identity", default=None)
_reason: ContextVar[str | None] = ContextVar("reason", default=None)

MAX_REASON = 500  # characters


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """One entry in the log of operator actions, such as a replay."""

    # `at` is by the database's clock. `action` is the words of the command, such as "dead replay". `target` has the
    # objects of the action, with secrets masked: `record_ids`, an aggregate, filters. `count` is the number of
    # changed records, partitions or rows. `reason` is why, in the words of the operator, or None.

    id: int
    at: datetime
    who: str
    action: str
    subscription: str | None
    target: dict[str, Any]
    count: int
    reason: str | None


@contextmanager
def acting_as(identity: str | None, *, reason: str | None = None) -> Iterator[None]:
    """Record the operator actions of the block under the name `identity`, with a `reason`, in this thread or task.

    This is for a program that embeds partbox and has users of its own. None means the user of this process, and no
    reason. Raise `PartboxError` for a value that is no text or an empty one."""
    # Long texts are cut, and characters that are not printable are escaped.
    if identity is not None and not (isinstance(identity, str) and identity.strip()):
        raise PartboxError(f"identity {identity!r} must be a text that names who acts, such as 'alice@example.com'")
    if reason is not None and not (isinstance(reason, str) and reason.strip()):
        raise PartboxError(f"reason {reason!r} must be a text that says why, such as 'INC-4711: a bad deploy'")
    tokens = (
        _identity.set(identity and shorten_line(identity)),
        _reason.set(reason and shorten_line(reason, MAX_REASON)),
    )
    try:
        yield
    finally:
        _identity.reset(tokens[0])
        _reason.reset(tokens[1])


def current_actor() -> str:
    """Return the name under which actions are recorded: set by `acting_as`, or the user and host of this process."""
    return _identity.get() or shorten_line(f"{_find_user()}@{socket.gethostname()}")


def current_reason() -> str | None:
    """Return the reason with which actions are recorded: set by `acting_as`, or None."""
    return _reason.get()


def _find_user() -> str:
    try:
        return getuser()
    # The user may have no name, as in a container.
    except (OSError, KeyError, ImportError):
        return f"process {getpid()}"


def run_action(
    conn: Conn, query: str, schema: str, target: Mapping[str, object], **values: object
) -> list[tuple[Any, ...]]:
    """Run the query of an operator's action, record the action, and return the query's rows."""
    # The action is recorded in the same statement if the query's column `changed` says that it changed anything. Its
    # words are the first two of the query's name.
    note_values = build_action_values(" ".join(query.split("_")[:2]), target)
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(wrap_query("acted", query, schema), note_values | values).fetchall()


@dataclass(slots=True)
class LongAction:
    """An operator's action of several steps, which is logged as one entry that counts all changes.

    - A step is a statement or a transaction."""

    schema: str
    action: str
    target: Mapping[str, object]
    _id: int | None = None

    def add_changes(self, conn: Conn, changed: int) -> None:
        """Add `changed` rows to the log entry of this action."""
        # Call it in the transaction that changes the rows, so that the change and its record are both there or neither.
        if changed:
            values = build_action_values(self.action, self.target) | {"changed": changed, "id": self._id}
            (self._id,) = fetch_one_row(conn, "action_counted", self.schema, **values)


def build_action_values(action: str, target: Mapping[str, object]) -> dict[str, object]:
    """Return the query parameters for recording an operator's action: who acts, why, the action and its target."""
    # The target is JSON.
    named: dict[str, object] = {
        "who": current_actor(),
        "reason": current_reason(),
        "action": action,
        "subscription": None,
    }
    return named | {"target": orjson.dumps(target).decode()}


def list_actions(conn: Conn, schema: str, limit: int, **asked: object) -> list[OperatorAction]:
    """List at most `limit` recorded actions of operators, the newest first."""
    return fetch_records(conn, _build_action, "actions_list", schema, limit=limit, **asked)


def _build_action(*row: Any) -> OperatorAction:
    *known, target, count, reason = row
    values = (*known, mask_fields(orjson.loads(target)), count, mask_optional(reason))
    return OperatorAction(*values)
