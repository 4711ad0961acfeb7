"""The sessions of SQLAlchemy that transactional handlers get: one an event, joined to the event's savepoint.

A session is begun, is flushed and has its `before_commit` hooks called while its savepoint stands. It stays open then
until the COMMIT that counts: so its `after_commit` hooks are called behind that, or its `after_rollback` ones. What
would end its transaction is refused. All of this is SQLAlchemy's synchronous side, which an AsyncSession has, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction

from partbox.errors import PartboxError

TRAILING_SCRIPT = "partbox_behind"
"""The key, in the `info` of a connection, of what follows the name of a savepoint in the statement that is sent."""


class HandlerSession:
    """Put before a class of sessions: its transaction is partbox's to end, and all it does is in there."""

    bind: Any

    def get_bind(self, *_: Any, **__: Any) -> Any:
        return self.bind

    def begin(self, nested: bool = False) -> SessionTransaction:
        if not nested:
            _refuse("begin()")
        return super().begin(nested)  # type: ignore[misc,no-any-return]

    def commit(self) -> NoReturn:
        _refuse("commit()")

    def rollback(self) -> NoReturn:
        _refuse("rollback()")

    def prepare(self) -> NoReturn:
        _refuse("prepare()")

    def close(self) -> NoReturn:
        _refuse("close()")

    def reset(self) -> NoReturn:
        _refuse("reset()")

    def invalidate(self) -> NoReturn:
        _refuse("invalidate()")


def _refuse(call: str) -> NoReturn:
    raise PartboxError(
        f"the session of a transactional handler has no {call}: its transaction commits with the event, so return to "
        "have it committed, raise to undo all, and use `with session.begin_nested():` to undo a part"
    )


@cache
def guard_class(kind: Any) -> Any:
    """The class of sessions, with what handlers must not do refused."""
    return type(kind.__name__, (HandlerSession, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class JoinedSession:
    """A session in a savepoint, and its transaction, which is open until that of the connection ends.

    `trailing_script`: statements that follow the release of the savepoint, in the same message.
    """

    trailing_script = b""

    def __init__(self, sql_conn: Connection, session: Session) -> None:
        self._sql_conn = sql_conn
        self.session = session
        self._transaction = Session.begin(session)
        self._savepoint = sql_conn.begin_nested()

    def join(self) -> None:
        """Join the savepoint, before the handler can begin another; what fails here is to be undone, too."""
        self.session.connection()

    def prepare(self) -> None:
        """Flush it, and call its hooks. RuntimeError if the handler has ended its transaction."""
        if self.session.get_transaction() is not self._transaction:
            raise RuntimeError("the handler has ended the transaction of its session: only return, or raise")
        self._transaction._prepare_impl()  # which SQLAlchemy opens to transactions of two phases only

    def release(self) -> None:
        """Release its savepoint. RuntimeError if the handler has left another one open."""
        if self._sql_conn.get_nested_transaction() is not self._savepoint:
            raise RuntimeError("the handler has left a savepoint open: use `with session.begin_nested():`")
        self._sql_conn.info[TRAILING_SCRIPT] = self.trailing_script
        try:
            self._savepoint.commit()
        finally:
            del self._sql_conn.info[TRAILING_SCRIPT]

    def undo(self) -> None:
        """Roll back to its savepoint, call its hooks, and forget what it knows."""
        while (
            open_savepoint := self._sql_conn.get_nested_transaction()
        ) is not None and open_savepoint is not self._savepoint:
            open_savepoint.rollback()
        try:
            self._roll_back()
        finally:
            if self._savepoint.is_active:
                self._savepoint.rollback()

    def call_commit_hooks(self) -> None:
        """Call its hooks, now that the connection's transaction is committed."""
        try:
            self._transaction.commit()
        finally:
            Session.close(self.session)

    def call_rollback_hooks(self) -> None:
        """Call its hooks, now that the connection's transaction is rolled back."""
        self._transaction._connections.clear()  # with the savepoint that it was joined to, which is long released
        self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self.session.get_transaction() is not None:
                Session.rollback(self.session)
        finally:
            Session.close(self.session)


@contextmanager
def join_session(sql_conn: Connection, session: Session) -> Iterator[JoinedSession]:
    """A session in a savepoint of `sql_conn`, which the end of the block releases, and an error undoes."""
    joined = JoinedSession(sql_conn, session)
    try:
        joined.join()
        yield joined
        joined.release()
    except BaseException:
        joined.undo()
        raise
