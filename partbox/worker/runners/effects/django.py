"""Transactions of Django: `transaction.atomic()` on Django's own connection to the outbox's database. Handlers receive
no connection, because models use this connection by themselves. Writes on other connections are refused."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DjangoError
from django.db import close_old_connections, connections, transaction
from django.utils.connection import ConnectionDoesNotExist
from psycopg import Error

from partbox.db.deadline import Deadline, WatchedConnection, deadline_for_lease, watch_connection
from partbox.db.sql import Conn, fetch_rows, load_query
from partbox.errors import SettingsError
from partbox.handlers import Handler
from partbox.publish.integrations.django import refuse_foreign_writes
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.event_loop import EventLoop


class DjangoEffects(Effects):
    """The transactions of handlers with `transactional="django"`, on Django's connection to the outbox's database."""

    needs_lent_conn: ClassVar[bool] = False
    _deadline: Deadline

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        super().__init__(context, session, loop)
        self._django = get_connection()
        # Another user of this thread, such as a test, may have opened the connection.
        self._was_open = self._django.connection is not None
        self._commit_hooks: list[Any] = []

    @classmethod
    def check(cls, reading: Conn) -> None:
        """Raise SettingsError unless Django's connection uses psycopg 3, autocommit and the outbox's database."""
        # Django's connection of this thread is checked.
        # The connection is closed again if it was closed before.
        django = get_connection()
        was_open = django.connection is not None
        try:
            with psycopg_errors():
                django.ensure_connection()
                _check_connection(django, reading)
        finally:
            if not was_open:
                django.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        django = self._django
        self._refresh_connection()
        with psycopg_errors(self):
            block = transaction.atomic(using=django.alias)
            block.__enter__()
            if getattr(self, "conn", None) is not django.connection:
                self.conn = django.connection
                self._deadline = watch_connection(self.conn, deadline_for_lease(self.context.settings.lease))
            with exit_within(self._deadline, block):
                yield
                # Django would not call the hooks after a hook that raises.
                self._commit_hooks, django.run_on_commit = django.run_on_commit, []

    def run_script(self, script: bytes) -> tuple[str | None, ...]:
        with self._deadline:
            return super().run_script(script)

    def begin_anew(self) -> bool:
        self._django.needs_rollback = False
        return super().begin_anew()

    @contextmanager
    def savepoint(self, handler: Handler) -> Iterator[None]:
        django, hooks = self._django, len(self._django.run_on_commit)
        try:
            with hold_savepoint(django, self._deadline, lambda: f"; {self.session_defaults.after_event.decode()}"):
                yield
        except BaseException as error:
            # Django does this only if the rollback succeeded.
            del django.run_on_commit[hooks:]
            if isinstance(error, DjangoError):
                raise self.find_hung_error() or error from error.__cause__
            raise
        context = copy_context()
        django.run_on_commit[hooks:] = [
            (ids, partial(context.run, call), *more) for ids, call, *more in django.run_on_commit[hooks:]
        ]

    @property
    def is_intact(self) -> bool:
        return self._django.connection is self.conn and self._django.in_atomic_block and super().is_intact

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        with self._deadline:
            return super().save(me, saves)

    def take_commit_hooks(self) -> Iterable[Callable[[], object]]:
        hooks, self._commit_hooks = self._commit_hooks, []
        return [call for _, call, *_ in hooks]

    def go_idle(self) -> None:
        if self._django.connection is not None:
            close_old_connections()

    def close(self) -> None:
        if not self._was_open:
            self._django.close()

    def find_hung_error(self) -> Error | None:
        """Return the error of a Django statement that ran past its deadline, or None."""
        # Django's connection was cut for this reason.
        limit = getattr(self, "_deadline", None)
        return limit.build_lost_error() if limit is not None and limit.is_cut else None

    def _refresh_connection(self) -> None:
        # Django reconnects if its connection is lost or too old. CONN_MAX_AGE = 0 means: close the connection when no
        # event runs.
        django = self._django
        if django.in_atomic_block:
            raise psycopg.ProgrammingError(
                f"this thread is inside transaction.atomic() of {django.alias!r}, which would keep the transaction of "
                'handlers with transactional="django" from being committed: leave it first'
            )
        if django.connection is not None and (django.connection.closed or django.settings_dict["CONN_MAX_AGE"] != 0):
            django.errors_occurred |= django.connection.closed
            django.close_if_unusable_or_obsolete()


def find_alias() -> str:
    """Return the alias of the Django database that holds the outbox, from Django's setting PARTBOX."""
    given = getattr(settings, "PARTBOX", None)
    return (given.get("DATABASE") if isinstance(given, Mapping) else None) or "default"


@contextmanager
def hold_savepoint(django: Any, limit: Deadline, behind: Callable[[], str] = str) -> Iterator[None]:
    """Hold a savepoint on a Django connection during a with block, and refuse writes on other Django connections."""
    # The handler runs in the block. The transaction is open already. The statements that `behind` returns follow the
    # release of the savepoint in the same message.
    block = transaction.atomic(using=django.alias)
    with limit:
        block.__enter__()
    release = django.ops.savepoint_commit_sql
    try:
        with exit_within(limit, block):
            with refuse_foreign_writes(django.connection):
                yield
            # Django would roll back and raise nothing.
            if django.needs_rollback:
                raise transaction.TransactionManagementError(
                    "the handler has caught a database error, and its changes must be rolled back: catch such an error "
                    "around an inner `with transaction.atomic():`, or raise it"
                )
            script = behind()
            django.ops.savepoint_commit_sql = lambda sid: release(sid) + script
    finally:
        django.ops.savepoint_commit_sql = release


@contextmanager
def exit_within(limit: Deadline, block: AbstractContextManager[object]) -> Iterator[None]:
    """Limit the time that the end of a with block may take, but not the time of its body."""
    # `block` is the entered context manager, whose exit executes its last statements.
    try:
        yield
    except BaseException as error:
        with limit:
            block.__exit__(type(error), error, error.__traceback__)
        raise
    with limit:
        block.__exit__(None, None, None)


@contextmanager
def psycopg_errors(effects: DjangoEffects | None = None) -> Iterator[None]:
    """Translate Django's errors in a with block into the psycopg errors that caused them."""
    # If the connection was cut at a deadline, the error of the deadline is raised instead.
    try:
        yield
    except psycopg.OperationalError as error:
        if effects is None or (hung_error := effects.find_hung_error()) is None:
            raise
        raise hung_error from error
    except DjangoError as error:
        hung_error = effects.find_hung_error() if effects is not None else None
        cause = error.__cause__
        raise hung_error or (cause if isinstance(cause, Error) else psycopg.InternalError(str(error))) from error


def get_connection() -> Any:
    """Return Django's connection to the outbox's database. Raise SettingsError if it is not configured."""
    try:
        return connections[find_alias()]
    except (ConnectionDoesNotExist, ImproperlyConfigured) as error:
        raise SettingsError(f'transactional="django" needs Django\'s settings, with this database: {error}') from None


def _check_connection(django: Any, reading: Conn) -> None:
    # The Django connection must use psycopg 3 and autocommit, and be in the same database as the worker's connection
    # `reading`.
    if not isinstance(django.connection, psycopg.Connection):
        kind = type(django.connection).__module__.partition(".")[0]
        raise SettingsError(
            f'transactional="django" needs Django on psycopg 3, and {django.alias!r} uses {kind}: use the engine '
            '"django.db.backends.postgresql", which uses psycopg 3 if it is installed'
        )
    if not django.get_autocommit():
        raise SettingsError(
            f'transactional="django" needs AUTOCOMMIT, which {django.alias!r} has off: transaction.atomic() would not '
            "commit there"
        )
    with django.cursor() as cursor:
        cursor.execute(load_query("database_is", "partbox").decode())
        (theirs,) = cursor.fetchone()
    ((ours,),) = fetch_rows(reading, "database_is", "partbox")
    if theirs != ours:
        name = django.settings_dict.get("NAME")
        raise SettingsError(
            f'transactional="django" needs Django in the database of the outbox, and {django.alias!r} is another '
            f'one ({name!r}): set PARTBOX["DATABASE"] to the alias of the former, or the outbox\'s DSN to the latter'
        )
