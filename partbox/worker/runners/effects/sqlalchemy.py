"""Transactions of SQLAlchemy on the lent connection, through an engine that nothing else uses."""

import contextvars
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from typing import Any, Final, cast
from uuid import UUID

from psycopg import Error, errors
from sqlalchemy import create_engine, event, exc
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import StaticPool

from partbox.db.blocking import run_script
from partbox.db.deadline import WatchedConnection, allow_long_statements
from partbox.errors import PartboxError
from partbox.handlers import Handler
from partbox.publish.integrations.sqlalchemy_end import MarkRestorer, read_marks
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.effects.sessions import TRAILING_SCRIPT, JoinedSession, guard_class, join_session
from partbox.worker.runners.event_loop import EventLoop

SINGLE_CONN_OPTIONS: Final[dict[str, Any]] = {"poolclass": StaticPool, "pool_reset_on_return": None}
"""The options of an engine with a single connection, which the engine does not own."""


class SqlalchemyEffects(Effects):
    """The transactions of sync handlers with `transactional="sqlalchemy"`, on a connection that the worker lends."""

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        super().__init__(context, session, loop)
        self._may_end = False  # True while partbox itself ends the transaction
        with psycopg_errors():
            self._sql_conn = self._get_sql_conn()
        refuse_transaction_end(self._sql_conn, lambda: self._may_end)
        self._joined_sessions: list[tuple[JoinedSession, contextvars.Context]] = []
        self._committed_sessions: list[tuple[JoinedSession, contextvars.Context]] = []
        self._mark_restorer = MarkRestorer()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # SQLAlchemy, and all code that asks the driver, must see a transaction that it ends.
        self._set_autocommit(False)
        self._joined_sessions, self._committed_sessions = [], []
        try:
            with psycopg_errors():
                self._sql_conn.begin()
                yield
                self._may_end = True
                self._sql_conn.commit()
            self._committed_sessions = self._joined_sessions
        except BaseException:
            self._may_end = True
            self._roll_back()
            raise
        finally:
            self._may_end = False
            # The connection is lost.
            with suppress(Error):
                self._set_autocommit(True)

    @contextmanager
    def savepoint(self, handler: Handler) -> Iterator[None]:
        with self._open_session(handler) as (joined, handler_args):
            self.handler_args = (handler_args,)
            yield
            with allow_long_statements(self.conn):
                joined.prepare()
                joined.trailing_script = b"; %b; %b" % (
                    self.session_defaults.after_event,
                    self._mark_restorer.build_script(self._sql_conn),
                )
        self._joined_sessions.append((joined, self._get_event_context()))

    @property
    def is_intact(self) -> bool:
        root = self._sql_conn.get_transaction()
        return root is not None and root.is_active and super().is_intact

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        # Marks of published events: read them first, so that nothing comes between the save and the COMMIT.
        read_marks(self._sql_conn)
        return super().save(me, saves)

    def take_commit_hooks(self) -> Iterable[Callable[[], object]]:
        committed, self._committed_sessions = self._committed_sessions, []
        return [partial(context.run, each.call_commit_hooks) for each, context in committed]

    def close(self) -> None:
        self._may_end = True
        with suppress(Exception):
            self._sql_conn.close()

    def _roll_back(self) -> None:
        # A handler may have left any state. Errors are ignored, because the worker's session begins anew.
        with suppress(Exception):
            self._sql_conn.rollback()
        for each, context in self._joined_sessions:
            with suppress(Exception):
                context.run(each.call_rollback_hooks)
        with suppress(Error):
            self._roll_back_driver()

    def _get_event_context(self) -> contextvars.Context:
        return contextvars.copy_context()

    def _get_sql_conn(self) -> Connection:
        self.conn = self.session
        return build_engine(self.conn).connect()

    def _open_session(self, handler: Handler) -> AbstractContextManager[tuple[JoinedSession, Any]]:
        return open_session(self._sql_conn, handler)

    def _set_autocommit(self, value: bool) -> None:
        self.conn.autocommit = value

    def _roll_back_driver(self) -> None:
        self.conn.rollback()


@contextmanager
def open_session(on: Connection, handler: Handler) -> Iterator[tuple[JoinedSession, Any]]:
    """Hold a SQLAlchemy session in a savepoint during a with block."""
    # The block gets the session, and the session or scoped session that the handler receives.
    kind = handler.session or Session
    with join_session(on, build_session(kind, on)) as joined:
        factory: Any = lambda: joined.session  # noqa: E731  a factory
        yield joined, scoped_session(factory) if issubclass(kind, scoped_session) else joined.session


def build_session(kind: type, on: Connection) -> Session:
    """Return a SQLAlchemy session on the connection `on` that refuses to end the transaction."""
    # The session has the given class and sends all statements to `on`. A scoped class gives a plain Session.
    base_class: Any = Session if issubclass(kind, scoped_session) else kind
    return cast("Session", guard_class(base_class)(bind=on, join_transaction_mode="rollback_only"))


def build_engine(conn: Any) -> Engine:
    """Return a SQLAlchemy engine whose only connection is the psycopg connection `conn`."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: conn, **SINGLE_CONN_OPTIONS)
    send_plain_savepoints(engine, partial(run_script, conn))
    return engine


def send_plain_savepoints(engine: Engine, run: Callable[[bytes], object]) -> None:
    """Make a SQLAlchemy engine send its savepoint statements as plain text, without compiling them."""
    # SQLAlchemy would compile each of them, because no two are alike. `run` executes a script past SQLAlchemy: the
    # release of an event's savepoint with the statements after it, each of which would otherwise cost a cursor of
    # psycopg and a result.

    def send(command: str, on: Connection, savepoint: str) -> None:
        trailing_script: bytes | None = on.info.get(TRAILING_SCRIPT)
        if trailing_script is not None:
            run(b"%b %b%b" % (command.encode(), savepoint.encode(), trailing_script))
            return
        with closing(on.connection.cursor()) as cursor:
            cursor.execute(f"{command} {savepoint}")

    commands = ("savepoint", "SAVEPOINT"), ("release_savepoint", "RELEASE"), ("rollback_to_savepoint", "ROLLBACK TO")
    for name, command in commands:
        setattr(engine.dialect, f"do_{name}", partial(send, command))


def refuse_transaction_end(on: Connection, allowed: Callable[[], bool]) -> None:
    """Make COMMIT and ROLLBACK on a SQLAlchemy connection raise an error unless `allowed()` is True."""
    # So a handler cannot end the transaction.

    def refuse(_: Connection) -> None:
        if not allowed():
            raise PartboxError(
                "the connection of a transactional handler is in a transaction that commits with the event: return to "
                "have it committed, raise to undo all, and use `with session.begin_nested():` to undo a part"
            )

    for name in ("commit", "rollback"):
        event.listen(on.engine, name, refuse)


@contextmanager
def psycopg_errors() -> Iterator[None]:
    """Translate SQLAlchemy's errors in a with block into the psycopg errors that caused them."""
    try:
        yield
    except exc.DBAPIError as error:
        raise (error.orig if isinstance(error.orig, Error) else errors.InternalError(str(error))) from error
    except exc.SQLAlchemyError as error:
        raise errors.InternalError(str(error)) from error
