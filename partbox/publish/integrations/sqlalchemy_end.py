"""The true end of a transaction of SQLAlchemy.

None of SQLAlchemy's events reports it: `Session.after_commit` also comes when a savepoint is released, and when a
session has joined a transaction that is rolled back later; `commit` of a connection comes before COMMIT, which may
fail; an asynchronous session has no events. So we wrap the engine's dialect, whose `do_commit`, `do_rollback`,
`do_close` and `do_terminate` SQLAlchemy calls for every transaction of the driver, from the first publish that needs
its end. Just before the COMMIT we read which batches savepoints have undone, and whether the transaction still stands:
PostgreSQL answers the COMMIT of a failed transaction with a rollback and no error.
"""

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
from partbox.publish.transaction_outcome import Call, TransactionEnd

log = logging.getLogger("partbox.publish")

_watched: WeakSet[Dialect] = WeakSet()
_open: dict[Any, TransactionEnd] = {}
"""The ends that somebody waits for, by the driver's connection, or what SQLAlchemy adapts it by."""
_over: set[Any] = set()
"""The connections whose transaction has ended, and whose calls are being made."""


def ending_of(conn: Connection) -> TransactionEnd:
    """The end of the transaction that is open on `conn`, or that its next statement begins."""
    _watch(conn.dialect)
    return _open.setdefault(conn.connection.dbapi_connection, TransactionEnd())


def read_marks(conn: Connection) -> None:
    """Read now which batches savepoints have undone, and not before the COMMIT: no savepoint comes between."""
    driver = conn.connection.dbapi_connection
    if (ending := _open.get(driver)) is not None and (marks := _marks(driver)) is not None:
        ending.commits(marks)


class KeptMarks:
    """Keeps the marks of a transaction whose settings are set back in between. They are read once a batch."""

    def __init__(self) -> None:
        self._read: tuple[TransactionEnd | None, int, bytes] = None, 0, b""

    def script(self, conn: Connection) -> bytes:
        """Return the statement that sets the marks again, as they are now; empty if there are none."""
        driver = conn.connection.dbapi_connection
        ending = _open.get(driver)
        if ending is None or not ending.marked:
            return b""
        if self._read[:2] != (ending, ending.batches):
            kept = " ".join(text for (text,) in _marks(driver) or () if text)
            self._read = ending, ending.batches, statements.published_anew(kept)
        return self._read[2]


def check_not_over(conn: Connection) -> None:
    """Raise PublishError in a hook that is called at the end of this very transaction."""
    if conn.connection.dbapi_connection in _over:
        raise PublishError("the transaction has ended, and its hooks are being called: publish in another one")


def _watch(dialect: Dialect) -> None:
    """Have the ends of all transactions of an engine noticed, from now on."""
    if dialect not in _watched:
        _watched.add(dialect)
        dialect.do_commit = _committing(dialect.do_commit)  # type: ignore[assignment,method-assign]
        for name in ("do_rollback", "do_close", "do_terminate"):
            setattr(dialect, name, _taking_back(getattr(dialect, name)))


def _committing(commit: Callable[[Any], None]) -> Callable[[Any], None]:
    def do_commit(given: Any) -> None:
        conn = _of(given)
        ending = _open.get(conn)
        if ending is not None and not ending.is_read and (marks := _marks(conn)) is not None:
            ending.commits(marks)
        try:
            commit(given)
        except BaseException as error:
            _end(conn, error)
            raise
        _end(conn)

    return do_commit


def _taking_back(method: Callable[[Any], None]) -> Callable[[Any], None]:
    def do(given: Any) -> None:
        if (ending := _open.get(_of(given))) is not None:
            ending.does_not_commit()
        try:
            method(given)
        finally:
            _end(_of(given))

    return do


def _of(given: Any) -> Any:
    """The driver's connection: some methods get that, some what the pool lends."""
    return getattr(given, "dbapi_connection", given)


def _marks(conn: Any) -> list[tuple[str | None]] | None:
    """The marks that savepoints have not undone; None if PostgreSQL will roll back."""
    if not _open[conn].marked:
        return []
    try:
        with closing(conn.cursor()) as cursor:
            cursor.execute(statements.published_marks().decode())
            return list(cursor.fetchall())
    except Exception as error:
        if is_failed_transaction(error):
            return None
        raise  # SQLAlchemy takes it for the error of the COMMIT: a lost connection is not to pass in silence


def _end(conn: Any, error: BaseException | None = None) -> None:
    if (ending := _open.pop(conn, None)) is None:
        return
    _over.add(conn)
    try:
        for call in ending.calls(error):
            _make(call, conn)
    finally:
        _over.discard(conn)


def _make(call: Call, conn: Any) -> None:
    """Make the call; one of an asynchronous publish is awaited, as SQLAlchemy awaits its driver."""
    result = call()
    if inspect.isawaitable(result):
        try:
            conn.run_async(lambda _: result)
        except MissingGreenlet as error:  # the connection is given up where nothing can be awaited
            text = "asynchronous hooks are not called, for their connection was lost outside of an await: %s"
            log_event(log, "publish_hook_failed", text, error, hook="after_rollback")
