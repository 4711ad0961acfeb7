"""The contract of a kind of transaction, and the call of one handler in its savepoint."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar
from uuid import UUID

from psycopg import Connection, Error
from psycopg.pq import TransactionStatus

from partbox.db import blocking
from partbox.db.deadline import WatchedConnection, allow_long_statements
from partbox.db.delivery import cursors
from partbox.db.delivery import effects as scripts
from partbox.db.delivery.effects import (
    BEGIN_EVENT,
    BEGIN_WITH_SAVEPOINT,
    READ_SESSION,
    RELEASE,
    SAVEPOINT,
    SessionDefaults,
)
from partbox.db.sql import Conn
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.outcomes import Done
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave, save_arguments
from partbox.worker.fork_safety import exit_forked
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop


class NotDone(Exception):
    """The event is not done: its savepoint is rolled back."""


class Effects:
    """Transactions of one kind, one after the other. The transactor's thread only.

    `conn` is psycopg's connection below them, `session` one of the worker's session: the lent one, if that is made;
    `loop` runs what is `async def`. Errors of the transaction itself are psycopg's, whatever is between.
    """

    needs_lent_conn: ClassVar[bool] = True
    """True if it needs a connection that is lent; else it has its own."""
    conn: Connection[Any]
    handler_args: tuple[Any, ...] = ()
    """The arguments of a handler behind its event, inside of its savepoint."""
    begin_script: ClassVar[bytes] = BEGIN_EVENT
    end_prefix: ClassVar[bytes] = b""
    habits: SessionDefaults
    _habits_conn: Any = None  # the connection whose habits are known
    _xid = ""

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        self.context = context
        self.session = session
        self.loop = loop
        self._schema = context.schema

    @classmethod
    def check(cls, reading: Conn) -> None:
        """Raise SettingsError if these transactions would not be in the database of `reading`."""

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction, which the end of the block commits and an error rolls back."""
        raise NotImplementedError

    def savepoint(self, handler: Handler) -> AbstractContextManager[object]:
        """A savepoint around this handler, which an error rolls back."""
        raise NotImplementedError

    @property
    def is_intact(self) -> bool:
        """True if the transaction is there, behind a handler and its savepoint."""
        return self.conn.info.transaction_status == TransactionStatus.INTRANS

    def drive(self, run: Callable[[], object]) -> None:
        """Run a whole transaction, or the hooks behind it, where they are to run."""
        run()

    def run(self, script: bytes) -> tuple[str | None, ...]:
        """Execute a script on the connection, past the library; return the first row of its last statement."""
        return blocking.run_script(self.conn, script)

    def begin(self) -> None:
        """Lift the limits of time: a handler may take its own; what must be quick is what comes after the save."""
        if self.conn.info.transaction_status == TransactionStatus.IDLE:  # psycopg would begin with its first statement
            self.run(b"begin")
        if self._habits_conn is not self.conn or self.context.settings.pooler or self.session.pooled:
            self.habits, self._habits_conn = SessionDefaults.of(self.run(READ_SESSION)), self.conn
        self._xid = self.run(self.begin_script)[0] or ""

    def begin_anew(self) -> bool:
        """Begin another transaction where a handler has committed this one; False if it did not, and all is undone.

        The library below is not told: to it the transaction goes on.
        """
        try:
            self.run(b"rollback")
            if self.run(scripts.status_script(self._xid)) != ("committed",):
                return False
            self.begin()
            self.run(self.habits.kept)  # the handler's settings are committed, too
        except Error:
            return False
        return True

    def call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler in a savepoint, rolled back unless the event is done; return what it returned or raised."""
        result: object = None
        try:
            with self.savepoint(endpoint.handler):
                try:
                    with allow_long_statements(self.conn):
                        result = self.handle(endpoint, event)
                except BaseException as error:  # also SystemExit: a handler does not end the process
                    result = error
                if self.context.engine.is_forked:
                    exit_forked(result)
                if result is not None and not isinstance(result, Done):
                    raise NotDone
        except NotDone:
            return result
        except BaseException as error:
            return result if isinstance(result, BaseException) else error
        return result

    def handle(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler, inside of its savepoint; return what it returns, or raises."""
        return endpoint.wrapped_call(event, *self.handler_args)

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        """Save, as the last statement before the commit; see `cursors.save`."""
        context = self.context
        self.run(self.end())
        told = self._schema, context.subscription, me, *save_arguments(saves)
        return cursors.save(self.conn, *told, durable=True, session=self.session)

    def end(self) -> bytes:
        """The script before the save."""
        return self.end_prefix + self.habits.end(self.context.settings.lease / 2)

    def hooks(self) -> Iterable[Any]:
        """The calls that the library owes now that the transaction is committed; each may raise."""
        return ()

    def interrupt(self) -> None:
        """Cancel what a handler awaits, for good. Any thread."""

    def go_idle(self) -> None:
        """Nothing is to do for now."""

    def close(self) -> None:
        """Let go of what is its own; the session ends."""


class PsycopgEffects(Effects):
    """`transactional=True` on a plain function. A savepoint is set with the release of the one before."""

    begin_script: ClassVar[bytes] = BEGIN_WITH_SAVEPOINT
    end_prefix: ClassVar[bytes] = RELEASE + b"; "

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        super().__init__(context, session, loop)
        self.conn = session
        self.handler_args = (self.conn,)

    def transaction(self) -> AbstractContextManager[object]:
        return self.conn.transaction()

    @contextmanager
    def savepoint(self, handler: Handler) -> Iterator[None]:
        try:
            yield
            self.run(self.kept_script())
        except BaseException:
            if not self.conn.closed:
                scripts.rollback_event(self.conn)
            raise

    def kept_script(self) -> bytes:
        """The script behind an event that is done."""
        return b"%b; %b; %b" % (RELEASE, self.habits.kept, SAVEPOINT)
