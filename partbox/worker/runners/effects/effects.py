"""The interface of a kind of transaction, and the call of one handler in its savepoint."""

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
    """A signal that the event is not done, so that its savepoint is rolled back."""


class Effects:
    """Transactions of one kind, run one after another by the transactor's thread. `conn` is psycopg's connection below
    the library. `session` is a connection of the worker's session: the lent connection if `needs_lent_conn`. `loop`
    runs async handlers. Errors of the transaction itself are psycopg's, even below another library."""

    needs_lent_conn: ClassVar[bool] = True
    """True if the transactions use a connection that the poller lends, else they have their own."""
    conn: Connection[Any]
    handler_args: tuple[Any, ...] = ()
    """The arguments of a handler after its event, within its savepoint."""
    begin_script: ClassVar[bytes] = BEGIN_EVENT
    end_prefix: ClassVar[bytes] = b""
    habits: SessionDefaults
    _habits_conn: Any = None  # the connection whose session defaults are known
    _xid = ""

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        self.context = context
        self.session = session
        self.loop = loop
        self._schema = context.schema

    @classmethod
    def check(cls, reading: Conn) -> None:
        """Raise SettingsError if the transactions would not be in the database of `reading`."""

    def transaction(self) -> AbstractContextManager[object]:
        """Hold a transaction open: the end of the block commits, an error rolls back."""
        raise NotImplementedError

    def savepoint(self, handler: Handler) -> AbstractContextManager[object]:
        """Hold a savepoint around a call of the handler. An error rolls back to the savepoint."""
        raise NotImplementedError

    @property
    def is_intact(self) -> bool:
        """True if the transaction still exists after a handler and its savepoint have ended."""
        return self.conn.info.transaction_status == TransactionStatus.INTRANS

    def drive(self, run: Callable[[], object]) -> None:
        """Call `run`, a whole transaction or its hooks, in the place where this kind must run."""
        run()

    def run(self, script: bytes) -> tuple[str | None, ...]:
        """Execute a script on the connection, bypassing the library. Return the first row of its last statement."""
        return blocking.run_script(self.conn, script)

    def begin(self) -> None:
        """Begin the transaction and lift the time limits: only the statements after the handlers must be quick."""
        # psycopg would begin with its first own statement, but scripts bypass psycopg.
        if self.conn.info.transaction_status == TransactionStatus.IDLE:
            self.run(b"begin")
        if self._habits_conn is not self.conn or self.context.settings.pooler or self.session.pooled:
            self.habits, self._habits_conn = SessionDefaults.of(self.run(READ_SESSION)), self.conn
        self._xid = self.run(self.begin_script)[0] or ""

    def begin_anew(self) -> bool:
        """Begin another transaction after a handler has committed this one. Return False if nothing was committed. The
        library is not informed: in its view the same transaction goes on."""
        try:
            self.run(b"rollback")
            if self.run(scripts.status_script(self._xid)) != ("committed",):
                return False
            self.begin()
            # The commit also kept the settings that the handler made in the session.
            self.run(self.habits.kept)
        except Error:
            return False
        return True

    def call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler in a savepoint, rolled back unless the event is done. Return its value or its error."""
        result: object = None
        try:
            with self.savepoint(endpoint.handler):
                try:
                    with allow_long_statements(self.conn):
                        result = self.handle(endpoint, event)
                except BaseException as error:
                    # SystemExit too: a handler must not end the process.
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
        """Call the handler within its savepoint. Return its value or raise its error."""
        return endpoint.wrapped_call(event, *self.handler_args)

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        """Save the cursors as the last statement before the commit. Return the same as `cursors.save`."""
        context = self.context
        self.run(self.end())
        told = self._schema, context.subscription, me, *save_arguments(saves)
        return cursors.save(self.conn, *told, durable=True, session=self.session)

    def end(self) -> bytes:
        """Return the script that runs before the save."""
        return self.end_prefix + self.habits.end(self.context.settings.lease / 2)

    def hooks(self) -> Iterable[Any]:
        """Return the calls that the library has deferred until the commit. Each may raise."""
        return ()

    def interrupt(self) -> None:
        """Cancel a handler that awaits something, for good. Any thread may call this."""

    def go_idle(self) -> None:
        """Release resources, because no event waits now."""

    def close(self) -> None:
        """Release the resources of this kind, because the session ends."""


class PsycopgEffects(Effects):
    """Transactions of sync handlers with `transactional=True`. One message releases a savepoint and sets the next."""

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
        """Return the script that runs after an event that is done."""
        return b"%b; %b; %b" % (RELEASE, self.habits.kept, SAVEPOINT)
