"""Report the end of a transaction, by which hooks and embedded workers are called.

psycopg and asyncpg do not report how a transaction ended, but `outbox.transaction(conn)` does. Each batch appends its
number to a setting that is local to the transaction. PostgreSQL reverts the setting with a rollback to any savepoint.
The setting is read just before the commit, and shows which batches were undone. If the answer to the COMMIT is lost,
the outcome is unknown: no hook is called, and a warning is logged."""

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto
from typing import Any, Protocol

from partbox.observe.logs.log_event import log_event
from partbox.publish.failures import is_refused_commit

log = logging.getLogger("partbox.publish")

# Returns an awaitable if it was registered on an asynchronous connection. Never raises.
EndCallback = Callable[[], Any]


class EndReporter(Protocol):
    """An object that calls functions after a transaction was committed or rolled back.

    `on_commit` calls if the writes before the registration are committed, and `on_rollback` if they are rolled back, to
    a savepoint or entirely. Neither calls if the outcome is unknown."""

    def draw_savepoint_mark(self) -> int | None:
        """Return a number to store in the transaction, by which a rollback to a savepoint is noticed. None if none is
        needed.

        It is appended to the transaction's setting before the batch's calls are registered."""

    def on_commit(self, call: EndCallback) -> None: ...

    def on_rollback(self, call: EndCallback) -> None: ...

    def wake_after_commit(self, call: EndCallback) -> None:
        """Call `call` once after the commit, however often it was registered. Savepoints do not matter."""


class Outcome(Enum):
    """The outcome of a transaction: committed, rolled back, or unknown because the answer to COMMIT was lost."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


class TransactionEnd:
    """A collector of the functions to call when a transaction has been committed or rolled back.

    No library tracks the transaction's savepoints. The transaction counts as rolled back unless `note_commit` says that
    COMMIT is the next statement."""

    def __init__(self) -> None:
        self._mark_count = 0
        self._kept_marks: set[int] | None = None
        self._pending_calls: list[tuple[int, bool, EndCallback]] = []
        self._wake_calls: dict[EndCallback, None] = {}

    @property
    def has_marks(self) -> bool:
        """True if the transaction stores numbers of published batches, which must be read before the commit."""
        # The marks cost one statement per batch and one per commit, and only if there are after_commit or
        # after_rollback hooks. The setting grows by a few characters per batch, which becomes noticeable at ten
        # thousand batches in one transaction. Two alternatives were rejected. A query for the events would need an
        # index on their ids and a privilege that publishers do not have. psycopg's own savepoint counter is private,
        # and does not count savepoints made in SQL.
        # These numbers are the marks.
        return self._mark_count > 0

    @property
    def batch_count(self) -> int:
        """The number of published batches in the transaction, including batches undone by savepoints."""
        # Only batches that have a mark count.
        return self._mark_count

    @property
    def has_read_marks(self) -> bool:
        """True if the list of published batches that no savepoint undid was read for the commit."""
        return self._kept_marks is not None

    def draw_savepoint_mark(self) -> int:
        self._mark_count += 1
        return self._mark_count

    def on_commit(self, call: EndCallback) -> None:
        self._pending_calls.append((self._mark_count, True, call))

    def on_rollback(self, call: EndCallback) -> None:
        self._pending_calls.append((self._mark_count, False, call))

    def wake_after_commit(self, call: EndCallback) -> None:
        self._wake_calls[call] = None

    def note_commit(self, marks: list[tuple[str | None]]) -> None:
        """Record that COMMIT is sent next."""
        # `marks` are the rows of the setting with the numbers of the batches that were not undone, read just before.
        self._kept_marks = {int(mark) for (text,) in marks for mark in (text or "").split()}

    def revoke_commit(self) -> None:
        """Take back the announcement of a commit, because COMMIT was not sent after all."""
        self._kept_marks = None

    def list_calls(self, error: BaseException | None) -> Iterator[EndCallback]:
        """Yield the registered calls to make after the transaction, depending on its outcome."""
        # `error` is the exception that the transaction's end raised.
        outcome, kept = self._find_outcome(error), self._kept_marks or set()
        if outcome is not Outcome.ROLLED_BACK:
            yield from self._wake_calls
        for mark, if_committed, call in self._pending_calls:
            if mark not in kept:
                if not if_committed:
                    yield call
            elif outcome is not Outcome.UNKNOWN and if_committed == (outcome is Outcome.COMMITTED):
                yield call
        if outcome is Outcome.UNKNOWN and (lost := {mark for mark, *_ in self._pending_calls} & kept):
            warn_unknown_outcome(len(lost), error)

    def _find_outcome(self, error: BaseException | None) -> Outcome:
        if self._kept_marks is None or (error is not None and is_refused_commit(error)):
            return Outcome.ROLLED_BACK
        return Outcome.COMMITTED if error is None else Outcome.UNKNOWN


def warn_unknown_outcome(batches: int, error: BaseException | None) -> None:
    """Log a warning that a COMMIT was not answered, so events may or may not be published."""
    # The request was cancelled or the connection lost. PostgreSQL does not stop for a client that has gone.
    # `batches` batches of events are affected.
    text = (
        "a COMMIT was cut off before its answer, so nobody knows whether %d %s of events %s published: neither "
        "after_commit nor after_rollback hooks are called (%s)"
    )
    words = ("batch", "was") if batches == 1 else ("batches", "were")
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    log_event(log, "publish_end_unknown", text, batches, *words, reason, batches=batches)


# The open transactions by the `id` of their connection. Each value holds the connection, so that no other object can
# get the same `id` meanwhile. A `WeakKeyDictionary` is impossible, because some connections do not allow weak
# references.
_open_ends: dict[int, tuple[Any, TransactionEnd]] = {}


def _unwrap(conn: Any) -> Any:
    """Return libpq's connection, which all proxies of a connection share, or else the innermost object."""
    wrapped = getattr(conn, "__wrapped__", None)
    return getattr(conn, "pgconn", None) or (conn if wrapped is None else _unwrap(wrapped))


@contextmanager
def report_end(conn: Any) -> Iterator[TransactionEnd]:
    """Call the registered hooks after the transaction that the block opens on `conn` was committed or rolled back."""
    # An example is an `after_commit` hook. The block also ends the transaction.
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
    """Call the registered hooks after the transaction of an asynchronous block was committed or rolled back."""
    # The block opens the transaction on `conn`.
    # An example is an `after_commit` hook. The block also ends the transaction. A call may return an awaitable.
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


def find_transaction_end(conn: Any) -> TransactionEnd | None:
    """Return the object that will report the end of the connection's transaction, or None if nothing does."""
    # The transaction is open on `conn`.
    found = _open_ends.get(id(_unwrap(conn))) if _open_ends else None
    return None if found is None else found[1]
