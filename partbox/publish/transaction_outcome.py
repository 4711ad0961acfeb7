"""The end of a transaction, which hooks and embedded workers are called by.

psycopg and asyncpg do not report how a transaction ended; `outbox.transaction(conn)` does. By then it must know which
batches were undone by a rollback to a savepoint, whether made by psycopg, SQLAlchemy or plain SQL. So every batch adds
its number to a setting local to the transaction, which PostgreSQL reverts together with the savepoint, and the setting
is read just before the commit. That costs a statement for each batch and one for the commit, and only if there are
after_commit or after_rollback hooks. The setting grows by a few characters a batch, which is noticeable from ten
thousand batches in one transaction. (Querying the events instead would need an index on their ids and a privilege that
publishers do not have; psycopg's own count of savepoints is private and misses those made in SQL.)

A COMMIT that was sent and not answered, since the request was cancelled or the connection lost, may have succeeded:
PostgreSQL does not stop for a client that has gone. Its batches belong to neither hook, which a warning says.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto
from typing import Any, Protocol

from partbox.observe.logs.log_event import log_event
from partbox.publish.failures import is_refused_commit

log = logging.getLogger("partbox.publish")

EndCallback = Callable[[], Any]
"""Returns an awaitable where it was registered on an asynchronous connection; raises nothing."""


class EndReporter(Protocol):
    """Reports the end of a transaction: the half of the adapter protocol that hooks need.

    A call is made once the transaction is over: `on_commit` if the writes before its registration are committed,
    `on_rollback` if they are rolled back, to a savepoint or entirely, and neither if nobody knows.
    """

    def savepoint_mark(self) -> int | None:
        """The number to add to the transaction's setting before calls are registered; None if not needed."""

    def on_commit(self, call: EndCallback) -> None: ...

    def on_rollback(self, call: EndCallback) -> None: ...

    def wake_after_commit(self, call: EndCallback) -> None:
        """Make the call once after a commit, however often it is registered; savepoints are ignored."""


class Outcome(Enum):
    """End of a transaction, as far as it is known."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


class TransactionEnd:
    """The end of a transaction whose savepoints no library tracks.

    Rolled back unless `note_commit` says that COMMIT is the next statement.
    """

    def __init__(self) -> None:
        self._marks = 0
        self._kept_marks: set[int] | None = None
        self._pending_calls: list[tuple[int, bool, EndCallback]] = []
        self._wakes: dict[EndCallback, None] = {}

    @property
    def has_marks(self) -> bool:
        """True if the marks must be read before the commit."""
        return self._marks > 0

    @property
    def batches(self) -> int:
        """The number of batches that have a mark so far, also those that savepoints have undone."""
        return self._marks

    @property
    def has_read_marks(self) -> bool:
        """True if the marks have been read."""
        return self._kept_marks is not None

    def savepoint_mark(self) -> int:
        self._marks += 1
        return self._marks

    def on_commit(self, call: EndCallback) -> None:
        self._pending_calls.append((self._marks, True, call))

    def on_rollback(self, call: EndCallback) -> None:
        self._pending_calls.append((self._marks, False, call))

    def wake_after_commit(self, call: EndCallback) -> None:
        self._wakes[call] = None

    def note_commit(self, marks: list[tuple[str | None]]) -> None:
        """Note that COMMIT is sent next. `marks`: the rows of the setting, read just before."""
        self._kept_marks = {int(mark) for (text,) in marks for mark in (text or "").split()}

    def revoke_commit(self) -> None:
        """Note that COMMIT was not sent after all."""
        self._kept_marks = None

    def list_calls(self, error: BaseException | None) -> Iterator[EndCallback]:
        """The calls to make now that the transaction is over; `error` is what it raised."""
        outcome, kept = self._outcome(error), self._kept_marks or set()
        if outcome is not Outcome.ROLLED_BACK:
            yield from self._wakes
        for mark, if_committed, call in self._pending_calls:
            if mark not in kept:
                if not if_committed:
                    yield call
            elif outcome is not Outcome.UNKNOWN and if_committed == (outcome is Outcome.COMMITTED):
                yield call
        if outcome is Outcome.UNKNOWN and (lost := {mark for mark, *_ in self._pending_calls} & kept):
            warn_unknown_outcome(len(lost), error)

    def _outcome(self, error: BaseException | None) -> Outcome:
        if self._kept_marks is None or (error is not None and is_refused_commit(error)):
            return Outcome.ROLLED_BACK
        return Outcome.COMMITTED if error is None else Outcome.UNKNOWN


def warn_unknown_outcome(batches: int, error: BaseException | None) -> None:
    """Log that nobody knows whether these batches were published."""
    text = (
        "a COMMIT was cut off before its answer, so nobody knows whether %d %s of events %s published: neither "
        "after_commit nor after_rollback hooks are called (%s)"
    )
    words = ("batch", "was") if batches == 1 else ("batches", "were")
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    log_event(log, "publish_end_unknown", text, batches, *words, reason, batches=batches)


_open_ends: dict[int, tuple[Any, TransactionEnd]] = {}
"""The open transactions, by `id` of their connections, and these: while one is held no other gets its `id`.

A `WeakKeyDictionary` does not serve: some connections allow no weak references.
"""


def _unwrap(conn: Any) -> Any:
    """Return what all proxies of a connection share: libpq's connection if there is one, else the innermost object."""
    wrapped = getattr(conn, "__wrapped__", None)
    return getattr(conn, "pgconn", None) or (conn if wrapped is None else _unwrap(wrapped))


@contextmanager
def report_end(conn: Any) -> Iterator[TransactionEnd]:
    """Report the end of the transaction that the block opens on `conn` and ends."""
    bare, end, error = _unwrap(conn), TransactionEnd(), None
    _open_ends[id(bare)] = bare, end
    try:
        yield end
    except BaseException as raised:
        error = raised
        raise
    finally:
        del _open_ends[id(bare)]
        for call in end.list_calls(error):
            call()


@asynccontextmanager
async def report_end_async(conn: Any) -> AsyncIterator[TransactionEnd]:
    """`report_end`, for an asynchronous block; a call may return an awaitable."""
    bare, end, error = _unwrap(conn), TransactionEnd(), None
    _open_ends[id(bare)] = bare, end
    try:
        yield end
    except BaseException as raised:
        error = raised
        raise
    finally:
        del _open_ends[id(bare)]
        for call in end.list_calls(error):
            if inspect.isawaitable(result := call()):
                await result


def of(conn: Any) -> TransactionEnd | None:
    """The end of the transaction of `conn`; None if it is not reported."""
    found = _open_ends.get(id(_unwrap(conn))) if _open_ends else None
    return None if found is None else found[1]
