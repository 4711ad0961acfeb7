"""The adapters of SQLAlchemy 2: sessions and connections over psycopg, psycopg2 and asyncpg, and SQLModel's sessions.

All statements run through SQLAlchemy's own connection, because SQLAlchemy does not commit a connection that it believes
to be idle. For asynchronous objects, everything runs inside `run_sync`, as in SQLAlchemy itself."""

import io
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.pq import TransactionStatus
from sqlalchemy import exc
from sqlalchemy.engine import Connection, TwoPhaseTransaction
from sqlalchemy.orm import Session, scoped_session

from partbox.errors import PublishError
from partbox.publish import transaction
from partbox.publish.adapter import BOTH, Adapter, AsyncAdapter, Parameters
from partbox.publish.failures import TRANSACTION_FAILED
from partbox.publish.integrations.asyncpg import copy_rows
from partbox.publish.integrations.sqlalchemy_end import check_not_ended, transaction_end_of
from partbox.publish.steps import Copy, Row
from partbox.publish.transaction_outcome import EndReporter
from partbox.publish.values import numbered

# The module needs greenlet, which is not installed along with SQLAlchemy 2.1.
if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

_REMEDY = (
    "the isolation level is AUTOCOMMIT, so take a connection or session of an engine with another level, such as "
    '`engine.execution_options(isolation_level="READ COMMITTED")`'
)
_UNTOLD = "it uses two-phase commit; leave out these hooks, or begin a one-phase transaction"


class SqlalchemyAdapter(Adapter):
    conn: Session | scoped_session[Any] | Connection
    remedy = _REMEDY
    untold = _UNTOLD

    def in_transaction(self) -> bool:
        self._target = on = _connection_of(self.conn)
        _check_usable(on)
        self.copies = (on.dialect.driver, on.dialect.is_async) in _COPY_FUNCTIONS
        self.tells = () if isinstance(on.get_transaction(), TwoPhaseTransaction) else BOTH
        return not on.connection.dbapi_connection.autocommit  # type: ignore[union-attr]

    def end_reporter(self) -> EndReporter:
        return transaction_end_of(self._target)

    def database(self) -> Hashable:
        # Each engine has a dialect of its own.
        return "sqlalchemy", id(self._target.dialect)

    def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        text, values = _adapt_statement(self._target, statement, parameters)
        result = self._target.exec_driver_sql(text, values)
        return [tuple(row) for row in result] if result.returns_rows else []

    def copy(self, step: Copy) -> int:
        """Copy rows into the log in SQLAlchemy's transaction, and return the number of written rows."""
        # SQLAlchemy has no COPY, so a COPY goes through the driver. With asyncpg, SQLAlchemy sends BEGIN only before
        # its first statement.
        # SQLAlchemy and the driver must be in the transaction first. SQLAlchemy does not commit writes that it does not
        # know about. PostgreSQL would commit at once if the driver had not sent its BEGIN yet.
        on = self._target
        if not _has_begun(on):
            on.exec_driver_sql("select 1")
        if not _has_begun(on):
            raise PublishError("SQLAlchemy has begun no transaction on the driver's connection: nothing is copied")
        return _COPY_FUNCTIONS[on.dialect.driver, on.dialect.is_async](on, step)


class AsyncSqlalchemyAdapter(AsyncAdapter):
    conn: "AsyncSession | async_scoped_session[Any] | AsyncConnection"
    remedy = _REMEDY
    untold = _UNTOLD

    async def in_transaction(self) -> bool:
        conn: Any = self.conn
        target: AsyncSession | AsyncConnection = conn if hasattr(conn, "run_sync") else conn.registry()
        # A scoped session has no `run_sync`.
        self._run = target.run_sync

        def find_transaction(within: Session | Connection) -> bool:
            self._sync = SqlalchemyAdapter(within)
            return self._sync.in_transaction()

        answer = await self._run(find_transaction)
        self.copies, self.tells = self._sync.copies, self._sync.tells
        return answer

    def end_reporter(self) -> EndReporter:
        return self._sync.end_reporter()

    def database(self) -> Hashable:
        return self._sync.database()

    async def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        return await self._run(lambda _: self._sync.execute(statement, parameters))

    async def copy(self, step: Copy) -> int:
        return await self._run(lambda _: self._sync.copy(step))


def _connection_of(given: Session | scoped_session[Any] | Connection) -> Connection:
    # A session works on this connection, in its savepoint if it has one. The call begins a transaction if needed.
    if isinstance(given, Connection):
        return given
    try:
        return given.connection()
    except exc.PendingRollbackError as error:
        raise PublishError(TRANSACTION_FAILED) from error
    except exc.UnboundExecutionError as error:
        raise PublishError(
            "the session has an engine for each of its tables and none for all: pass one of its connections, "
            '`session.connection(bind_arguments={"mapper": YourModel})`'
        ) from error
    except exc.InvalidRequestError as error:
        raise PublishError(f"there is no transaction: {error}") from error


def _check_usable(on: Connection) -> None:
    if on.dialect.name != "postgresql":
        raise PublishError(f"this database is {on.dialect.name}: publish on a PostgreSQL connection")
    if on.closed:
        raise PublishError("the connection is closed: take another")
    begun = [each for each in (on.get_transaction(), on.get_nested_transaction()) if each is not None]
    if not all(each.is_active for each in begun) or (on.invalidated and begun):
        raise PublishError(TRANSACTION_FAILED)
    check_not_ended(on)
    # asyncpg has no status to check.
    if hasattr(driver := on.connection.driver_connection, "info"):
        transaction.check_driver_status(driver)


def _adapt_statement(on: Connection, statement: str, parameters: Parameters) -> tuple[str, Any]:
    style = on.dialect.paramstyle
    if style == "pyformat":
        return statement, parameters
    if style != "numeric_dollar":
        raise PublishError(
            f"the driver {on.dialect.driver!r} is not supported: use psycopg, psycopg2 or asyncpg with SQLAlchemy"
        )
    text, names = numbered(statement)
    return text, tuple(parameters[name] for name in names)


def _driver_of(on: Connection) -> Any:
    return on.connection.driver_connection


def _dbapi_connection(on: Connection) -> Any:
    return on.connection.dbapi_connection


def _has_begun(on: Connection) -> bool:
    driver = _driver_of(on)
    if hasattr(driver, "info"):
        return on.in_transaction() and bool(driver.info.transaction_status == TransactionStatus.INTRANS)
    return on.in_transaction() and bool(driver.is_in_transaction())


@contextmanager
def _closing_broken_copy(on: Connection) -> Iterator[Any]:
    # The connection is closed and invalidated if its COPY is interrupted. Otherwise SQLAlchemy would try to roll back,
    # and the error of the rollback would hide the interruption.
    driver = _driver_of(on)
    try:
        with transaction.closing_broken_copy(driver):
            yield driver
    except BaseException as error:
        if driver.closed:
            on.invalidate(error)
        raise


def _copy_by_psycopg(on: Connection, step: Copy) -> int:
    with _closing_broken_copy(on) as driver, driver.cursor() as cursor:
        with cursor.copy(step.statement) as copy:
            for piece in step.lines():
                copy.write(piece)
        return int(cursor.rowcount)


def _copy_by_async_psycopg(on: Connection, step: Copy) -> int:
    async def copy_to_driver(driver: Any) -> int:
        async with driver.cursor() as cursor:
            async with cursor.copy(step.statement) as copy:
                for piece in step.lines():
                    await copy.write(piece)
            return int(cursor.rowcount)

    with _closing_broken_copy(on):
        return int(_dbapi_connection(on).run_async(copy_to_driver))


def _copy_by_psycopg2(on: Connection, step: Copy) -> int:
    with _driver_of(on).cursor() as cursor:
        cursor.copy_expert(step.statement.decode(), io.StringIO("".join(step.lines())))
        return int(cursor.rowcount)


def _copy_by_asyncpg(on: Connection, step: Copy) -> int:
    return int(_dbapi_connection(on).run_async(lambda driver: copy_rows(driver, step)))


# The function that copies, by the name of the driver and whether the driver is asynchronous.
_COPY_FUNCTIONS = {
    ("psycopg", False): _copy_by_psycopg,
    ("psycopg", True): _copy_by_async_psycopg,
    ("psycopg2", False): _copy_by_psycopg2,
    ("asyncpg", True): _copy_by_asyncpg,
}

_ENGINE = "open a connection, `with engine.begin() as conn:`, and pass that"
_MAKER = "open a session, `with factory.begin() as session:`, and pass that"

KINDS = {
    **dict.fromkeys(("Session", "scoped_session", "Connection"), SqlalchemyAdapter),
    **dict.fromkeys(("AsyncSession", "async_scoped_session", "AsyncConnection"), AsyncSqlalchemyAdapter),
    "Engine": _ENGINE,
    "AsyncEngine": _ENGINE.replace("with", "async with"),
    "sessionmaker": _MAKER,
    "async_sessionmaker": _MAKER.replace("with", "async with"),
}
