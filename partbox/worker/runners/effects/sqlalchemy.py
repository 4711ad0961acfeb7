"""Transactions of SQLAlchemy on the lent connection, which an engine of its own hands out and nobody else uses."""

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
from partbox.db.deadline import WatchedConnection, allowing
from partbox.errors import PartboxError
from partbox.handlers import Handler
from partbox.publish.integrations.sqlalchemy_end import KeptMarks, read_marks
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.effects.sessions import BEHIND, Joined, handler_class, joined
from partbox.worker.runners.event_loop import EventLoop

OF_ONE: Final[dict[str, Any]] = {"poolclass": StaticPool, "pool_reset_on_return": None}
"""The arguments of an engine that has one connection, which is not its own."""


class SqlalchemyEffects(Effects):
    """`transactional="sqlalchemy"` on a plain function."""

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        super().__init__(context, session, loop)
        self._ends = False  # the transaction, by us
        with psycopg_errors():
            self._on = self._connection()
        refuse_ends(self._on, lambda: self._ends)
        self._joined: list[tuple[Joined, contextvars.Context]] = []
        self._committed: list[tuple[Joined, contextvars.Context]] = []
        self._marks = KeptMarks()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._set_autocommit(False)  # so that SQLAlchemy, and all that ask it, see a transaction that it ends
        self._joined, self._committed = [], []
        try:
            with psycopg_errors():
                self._on.begin()
                yield
                self._ends = True
                self._on.commit()
            self._committed = self._joined
        except BaseException:
            self._ends = True
            self._roll_back()
            raise
        finally:
            self._ends = False
            with suppress(Error):  # it is lost
                self._set_autocommit(True)

    @contextmanager
    def savepoint(self, handler: Handler) -> Iterator[None]:
        with self._session_for(handler) as (here, given):
            self.given = (given,)
            yield
            with allowing(self.conn):
                here.prepare()
                here.behind = b"; %b; %b" % (self.habits.kept, self._marks.script(self._on))
        self._joined.append((here, self._event_context()))

    @property
    def is_intact(self) -> bool:
        root = self._on.get_transaction()
        return root is not None and root.is_active and super().is_intact

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        read_marks(self._on)  # of publishing: nothing comes between the save and the COMMIT
        return super().save(me, saves)

    def hooks(self) -> Iterable[Callable[[], object]]:
        committed, self._committed = self._committed, []
        return [partial(context.run, each.committed) for each, context in committed]

    def close(self) -> None:
        self._ends = True
        with suppress(Exception):
            self._on.close()

    def _roll_back(self) -> None:
        """Roll back, whatever a handler has made of it; the session begins anew, so what fails here is left."""
        with suppress(Exception):
            self._on.rollback()
        for each, context in self._joined:
            with suppress(Exception):
                context.run(each.rolled_back)
        with suppress(Error):
            self._roll_back_driver()

    def _event_context(self) -> contextvars.Context:
        """Return a copy of the context that the handler has run in, for its hooks."""
        return contextvars.copy_context()

    def _connection(self) -> Connection:
        self.conn = self.session
        return engine_on(self.conn).connect()

    def _session_for(self, handler: Handler) -> AbstractContextManager[tuple[Joined, Any]]:
        return session_for(self._on, handler)

    def _set_autocommit(self, value: bool) -> None:
        self.conn.autocommit = value

    def _roll_back_driver(self) -> None:
        self.conn.rollback()


@contextmanager
def session_for(on: Connection, handler: Handler) -> Iterator[tuple[Joined, Any]]:
    """A session in a savepoint, and what the handler gets of it: itself, or as the scoped one that it asks for."""
    kind = handler.session or Session
    with joined(on, session_on(kind, on)) as here:
        always: Any = lambda: here.session  # noqa: E731  a factory
        yield here, scoped_session(always) if issubclass(kind, scoped_session) else here.session


def session_on(kind: type, on: Connection) -> Session:
    """A session of this class, or of the usual one for a scoped one, whose statements all go there."""
    made: Any = Session if issubclass(kind, scoped_session) else kind
    return cast("Session", handler_class(made)(bind=on, join_transaction_mode="rollback_only"))


def engine_on(conn: Any) -> Engine:
    """An engine whose only connection is this one."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: conn, **OF_ONE)
    quicken(engine, partial(run_script, conn))
    return engine


def quicken(engine: Engine, run: Callable[[bytes], object]) -> None:
    """Send the savepoints of this engine as they are. SQLAlchemy would compile each, for no two are alike.

    `run` executes a script past SQLAlchemy: the release of an event's savepoint with the statements behind it, each of
    which would cost a cursor of psycopg a result.
    """

    def send(command: str, on: Connection, savepoint: str) -> None:
        behind: bytes | None = on.info.get(BEHIND)
        if behind is not None:
            run(b"%b %b%b" % (command.encode(), savepoint.encode(), behind))
            return
        with closing(on.connection.cursor()) as cursor:
            cursor.execute(f"{command} {savepoint}")

    commands = ("savepoint", "SAVEPOINT"), ("release_savepoint", "RELEASE"), ("rollback_to_savepoint", "ROLLBACK TO")
    for name, command in commands:
        setattr(engine.dialect, f"do_{name}", partial(send, command))


def refuse_ends(on: Connection, allowed: Callable[[], bool]) -> None:
    """Have COMMIT and ROLLBACK through this connection refused unless they are `allowed` now."""

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
    """Raise the error of psycopg below one of SQLAlchemy's."""
    try:
        yield
    except exc.DBAPIError as error:
        raise (error.orig if isinstance(error.orig, Error) else errors.InternalError(str(error))) from error
    except exc.SQLAlchemyError as error:
        raise errors.InternalError(str(error)) from error
