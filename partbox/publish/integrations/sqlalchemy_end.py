"""Report the true end of SQLAlchemy transactions, by wrapping methods of the engine's dialect.

None of SQLAlchemy's events reports it. `Session.after_commit` also comes when a savepoint is released, and when the
session has joined a transaction that is rolled back later. The `commit` event of a connection comes before the COMMIT,
which may fail. An asynchronous session has no events."""

import inspect
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any
from weakref import WeakSet

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import MissingGreenlet

from partbox.db import statements
from partbox.errors import PublishError
from partbox.observe.logs.log_event import log_event
from partbox.publish.failures import is_failed_transaction
from partbox.publish.transaction_outcome import EndCallback, TransactionEnd

log = logging.getLogger("partbox.publish")

_watched_dialects: WeakSet[Dialect] = WeakSet()
# The ends that somebody waits for, by the driver's connection or SQLAlchemy's wrapper of it.
_open_ends: dict[Any, TransactionEnd] = {}
# The connections whose transaction has ended and whose calls are being made.
_ended: set[Any] = set()


def transaction_end_of(conn: Connection) -> TransactionEnd:
    """Return the object that will report the end of the connection's SQLAlchemy transaction."""
    # The transaction is open on `conn`, or its next statement begins it.
    _watch_dialect(conn.dialect)
    return _open_ends.setdefault(conn.connection.dbapi_connection, TransactionEnd())


def read_marks(conn: Connection) -> None:
    """Find out before the commit which published events were undone by rollbacks to savepoints."""
    # The numbers of the batches are read now, not just before the COMMIT. No savepoint may follow.
    driver = conn.connection.dbapi_connection
    if (transaction_end := _open_ends.get(driver)) is not None and (marks := _fetch_marks(driver)) is not None:
        transaction_end.note_commit(marks)


class MarkRestorer:
    """A helper that restores a transaction's list of published batches after a reset of settings.

    The numbers of the batches (the transaction's marks) are kept in a transaction-local setting, and are read once per
    batch."""

    def __init__(self) -> None:
        self._cached_script: tuple[TransactionEnd | None, int, bytes] = None, 0, b""

    def build_script(self, conn: Connection) -> bytes:
        """Return an SQL statement that restores the transaction's list of published batches, or no bytes if there are
        none."""
        # The numbers of the batches are the transaction's marks.
        driver = conn.connection.dbapi_connection
        transaction_end = _open_ends.get(driver)
        if transaction_end is None or not transaction_end.has_marks:
            return b""
        if self._cached_script[:2] != (transaction_end, transaction_end.batch_count):
            kept = " ".join(text for (text,) in _fetch_marks(driver) or () if text)
            self._cached_script = transaction_end, transaction_end.batch_count, statements.build_restored_marks(kept)
        return self._cached_script[2]


def check_not_ended(conn: Connection) -> None:
    """Raise PublishError if a hook at the end of a transaction publishes in this same transaction."""
    if conn.connection.dbapi_connection in _ended:
        raise PublishError("the transaction has ended, and its hooks are being called: publish in another one")


def _watch_dialect(dialect: Dialect) -> None:
    # The methods of an engine's dialect are wrapped, so that the end of each of its transactions is observed from now
    # on.
    if dialect not in _watched_dialects:
        _watched_dialects.add(dialect)
        dialect.do_commit = _wrap_commit(dialect.do_commit)  # type: ignore[assignment,method-assign]
        for name in ("do_rollback", "do_close", "do_terminate"):
            setattr(dialect, name, _wrap_rollback(getattr(dialect, name)))


def _wrap_commit(commit: Callable[[Any], None]) -> Callable[[Any], None]:
    def do_commit(given: Any) -> None:
        conn = _driver_connection(given)
        transaction_end = _open_ends.get(conn)
        if (
            transaction_end is not None
            and not transaction_end.has_read_marks
            and (marks := _fetch_marks(conn)) is not None
        ):
            transaction_end.note_commit(marks)
        try:
            commit(given)
        except BaseException as error:
            _finish_transaction(conn, error)
            raise
        _finish_transaction(conn)

    return do_commit


def _wrap_rollback(method: Callable[[Any], None]) -> Callable[[Any], None]:
    def do(given: Any) -> None:
        if (transaction_end := _open_ends.get(_driver_connection(given))) is not None:
            transaction_end.revoke_commit()
        try:
            method(given)
        finally:
            _finish_transaction(_driver_connection(given))

    return do


def _driver_connection(given: Any) -> Any:
    # Some methods of a dialect get the driver's connection directly, others get the pool's object.
    return getattr(given, "dbapi_connection", given)


def _fetch_marks(conn: Any) -> list[tuple[str | None]] | None:
    """Return the numbers of the published batches that no savepoint undid, or None if the transaction failed."""
    # PostgreSQL answers the COMMIT of a failed transaction with a rollback and without an error.
    # The result has the rows of the transaction's setting. After a failed statement, PostgreSQL will roll back.
    if not _open_ends[conn].has_marks:
        return []
    try:
        with closing(conn.cursor()) as cursor:
            cursor.execute(statements.published_marks().decode())
            return list(cursor.fetchall())
    except Exception as error:
        if is_failed_transaction(error):
            return None
        # SQLAlchemy takes the exception as the error of the COMMIT. A lost connection must not go unnoticed.
        raise


def _finish_transaction(conn: Any, error: BaseException | None = None) -> None:
    if (transaction_end := _open_ends.pop(conn, None)) is None:
        return
    _ended.add(conn)
    try:
        for call in transaction_end.list_calls(error):
            _make_call(call, conn)
    finally:
        _ended.discard(conn)


def _make_call(call: EndCallback, conn: Any) -> None:
    """Call a hook at the end of a transaction, and wait for its result if it is asynchronous."""
    # The awaitable of an asynchronous publish is awaited in the way in which SQLAlchemy awaits its driver.
    result = call()
    if inspect.isawaitable(result):
        try:
            conn.run_async(lambda _: result)
        except MissingGreenlet as error:
            # The connection was given up where nothing can be awaited.
            text = "asynchronous hooks are not called, because the connection was lost where nothing can be awaited: %s"
            log_event(log, "publish_hook_failed", text, error, hook="after_rollback")
