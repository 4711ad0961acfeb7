"""SQLAlchemy sessions for transactional handlers: one per event, joined to the savepoint of the event.

A session begins within its savepoint, where it is flushed and its `before_commit` hooks are called. It stays open until
the whole transaction ends. Then its `after_commit` or its `after_rollback` hooks are called."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction

from partbox.errors import PartboxError

TRAILING_SCRIPT = "partbox_behind"
"""The key in `Connection.info` of the text that follows the name of a savepoint in the statement that is sent."""


class HandlerSession:
    """A mixin for SQLAlchemy sessions on one connection, which refuses calls that would end the transaction."""

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
    """Return a subclass of a SQLAlchemy session class that refuses calls such as commit and rollback."""
    # All calls that would end the transaction are refused.
    return type(kind.__name__, (HandlerSession, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class JoinedSession:
    """A SQLAlchemy session whose changes for one event can be undone by a rollback to a savepoint."""

    # Its session transaction stays open until the connection's transaction ends. `trailing_script`: statements that
    # follow the release of the savepoint in the same message.

    trailing_script = b""

    def __init__(self, sql_conn: Connection, session: Session) -> None:
        self._sql_conn = sql_conn
        self.session = session
        self._transaction = Session.begin(session)
        self._savepoint = sql_conn.begin_nested()

    def join(self) -> None:
        """Attach the session to the event's savepoint. The caller must undo the savepoint on an error."""
        # This comes before the handler can begin another savepoint.
        self.session.connection()

    def prepare(self) -> None:
        """Flush the session after its handler has returned, and call its `before_commit` hooks."""
        # RuntimeError is raised if the handler has ended the session's transaction.
        if self.session.get_transaction() is not self._transaction:
            raise RuntimeError("the handler has ended the transaction of its session: only return, or raise")
        # The public method is open only to two-phase transactions.
        self._transaction._prepare_impl()

    def release(self) -> None:
        """Release the savepoint of the event, so that its changes stay."""
        # RuntimeError is raised if the handler has left another savepoint open.
        if self._sql_conn.get_nested_transaction() is not self._savepoint:
            raise RuntimeError("the handler has left a savepoint open: use `with session.begin_nested():`")
        self._sql_conn.info[TRAILING_SCRIPT] = self.trailing_script
        try:
            self._savepoint.commit()
        finally:
            del self._sql_conn.info[TRAILING_SCRIPT]

    def undo(self) -> None:
        """Roll back the event's changes to its savepoint, and close the session."""
        # The session's rollback hooks are called too.
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
        """Call the session's `after_commit` hooks and close the session."""
        # The connection's transaction has committed before.
        try:
            self._transaction.commit()
        finally:
            Session.close(self.session)

    def call_rollback_hooks(self) -> None:
        """Call the session's `after_rollback` hooks and close the session."""
        # Forget the savepoint that the session was joined to, which was released long ago.
        # The connection's transaction was rolled back before.
        self._transaction._connections.clear()
        self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self.session.get_transaction() is not None:
                Session.rollback(self.session)
        finally:
            Session.close(self.session)


@contextmanager
def join_session(sql_conn: Connection, session: Session) -> Iterator[JoinedSession]:
    """Hold a SQLAlchemy session in a savepoint during a with block. An error undoes its changes."""
    # An AsyncSession has a synchronous side, which is joined in the same way.
    # The savepoint is set on `sql_conn`. The end of the block releases it.
    joined = JoinedSession(sql_conn, session)
    try:
        joined.join()
        yield joined
        joined.release()
    except BaseException:
        joined.undo()
        raise
