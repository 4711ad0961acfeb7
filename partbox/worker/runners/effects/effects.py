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
from partbox.worker.engine.saves import PartitionSave, build_save_arguments
from partbox.worker.fork_safety import exit_forked
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop


class NotDone(Exception):
    """An internal signal that a handler did not complete its event, so that the event's savepoint is rolled back."""


class Effects:
    """The interface for running event handlers in database transactions of psycopg, SQLAlchemy or Django."""

    # The transactor's thread uses it. `conn` is psycopg's connection below the library. `session` is a connection of
    # the worker's session: the lent connection if `needs_lent_conn`. `loop` runs async handlers. Errors of the
    # transaction itself are psycopg's, even below another library.

    needs_lent_conn: ClassVar[bool] = True
    """True if the transactions use a connection that the poller lends, else they have their own."""
    conn: Connection[Any]
    handler_args: tuple[Any, ...] = ()
    """The arguments of a handler after its event, within its savepoint."""
    begin_script: ClassVar[bytes] = BEGIN_EVENT
    end_prefix: ClassVar[bytes] = b""
    session_defaults: SessionDefaults
    _defaults_conn: Any = None  # the connection whose session defaults are known
    _xid = ""

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        self.context = context
        self.session = session
        self.loop = loop
        self._schema = context.schema

    @classmethod
    def check(cls, reading: Conn) -> None:
        """Raise SettingsError if transactions would run in another database than that of the connection `reading`."""

    def transaction(self) -> AbstractContextManager[object]:
        """Hold a database transaction open during a with block. Commit at its end, roll back on an error."""
        raise NotImplementedError

    def savepoint(self, handler: Handler) -> AbstractContextManager[object]:
        """Hold a database savepoint during a call of the handler. An error rolls back to the savepoint."""
        raise NotImplementedError

    @property
    def is_intact(self) -> bool:
        """True if the handler has neither committed nor rolled back the transaction."""
        # This is read after the handler and its savepoint have ended.
        return self.conn.info.transaction_status == TransactionStatus.INTRANS

    def drive(self, run: Callable[[], object]) -> None:
        """Call `run` in the thread or context that this kind of transaction requires."""
        # `run` executes a whole transaction or its hooks.
        run()

    def run_script(self, script: bytes) -> tuple[str | None, ...]:
        """Execute an SQL script directly on the psycopg connection. Return the first row of the last statement."""
        # The library above the connection does not see the script.
        return blocking.run_script(self.conn, script)

    def begin(self) -> None:
        """Begin the transaction for handlers, without a time limit."""
        # Handlers may be slow, only the statements after them must be quick.
        # psycopg would begin with its first own statement, but scripts bypass psycopg.
        if self.conn.info.transaction_status == TransactionStatus.IDLE:
            self.run_script(b"begin")
        if self._defaults_conn is not self.conn or self.context.settings.pooler or self.session.is_pooled:
            self.session_defaults, self._defaults_conn = (
                SessionDefaults.from_row(self.run_script(READ_SESSION)),
                self.conn,
            )
        self._xid = self.run_script(self.begin_script)[0] or ""

    def begin_anew(self) -> bool:
        """Begin another transaction if a handler has committed the current one. Return False if it has not."""
        # The library is not told, so the same transaction goes on for it.
        try:
            self.run_script(b"rollback")
            if self.run_script(scripts.render_status(self._xid)) != ("committed",):
                return False
            self.begin()
            # The commit also kept the settings that the handler made in the session.
            self.run_script(self.session_defaults.after_event)
        except Error:
            return False
        return True

    def call_in_savepoint(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler with an event, inside a savepoint. Return the handler's value or its error."""
        # The savepoint is rolled back unless the event is done.
        result: object = None
        try:
            with self.savepoint(endpoint.handler):
                try:
                    with allow_long_statements(self.conn):
                        result = self.call_handler(endpoint, event)
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

    def call_handler(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler with an event in the open savepoint. Return its value or raise its error."""
        return endpoint.wrapped_call(event, *self.handler_args)

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        """Save how far the events of each partition have been delivered, just before the commit."""
        # This is the last statement before the commit. The result is the same as that of `cursors.save`.
        context = self.context
        self.run_script(self.build_end_script())
        told = self._schema, context.subscription, me, *build_save_arguments(saves)
        return cursors.save(self.conn, *told, durable=True, session=self.session)

    def build_end_script(self) -> bytes:
        """Return the SQL script to run after the last handler of the transaction."""
        # The delivery positions are saved after it.
        return self.end_prefix + self.session_defaults.render_end(self.context.settings.lease / 2)

    def take_commit_hooks(self) -> Iterable[Any]:
        """Return the functions that handlers have deferred until after the commit."""
        # The library (Django or SQLAlchemy) keeps them. Each may raise when called.
        return ()

    def interrupt(self) -> None:
        """Cancel the async transactional handler that runs now, and end its task for good. Any thread may call this."""

    def go_idle(self) -> None:
        """Release the connections that are not needed while no event waits."""

    def close(self) -> None:
        """Release the connection and other resources, because the worker's database session ends."""


class PsycopgEffects(Effects):
    """The transactions of sync handlers with `transactional=True`, on a psycopg connection."""

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
            self.run_script(self.build_kept_script())
        except BaseException:
            if not self.conn.closed:
                scripts.rollback_event(self.conn)
            raise

    def build_kept_script(self) -> bytes:
        """Return the SQL script to run after a handler has completed an event."""
        # One message releases the savepoint, restores the session's settings, and sets the next savepoint.
        return b"%b; %b; %b" % (RELEASE, self.session_defaults.after_event, SAVEPOINT)
