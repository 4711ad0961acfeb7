"""The context manager `outbox.transaction(conn)`: a transaction whose end is reported."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncTransaction, Connection, Transaction
from psycopg.pq import TransactionStatus

from partbox.db import statements
from partbox.db.type_conversion import AsyncOwnCursor, OwnCursor
from partbox.errors import PublishError
from partbox.publish import integrations, transaction, transaction_outcome
from partbox.publish.adapter import BaseAdapter
from partbox.publish.failures import is_failed_transaction
from partbox.publish.steps import Query
from partbox.publish.transaction import AnyConnection
from partbox.publish.transaction_outcome import TransactionEnd

ROLLED_BACK_INSIDE = (
    "the transaction was rolled back, with everything in it: one of its statements failed, and its error was caught "
    "inside the block. Let the error leave the block, or put `with conn.transaction():` around what may fail"
)

# The statement does not depend on the schema.
_READ_MARKS = Query(statements.published_marks(), {})


class TransactionScope:
    """A context manager, sync and async, that opens a transaction for publishing events and returns its connection.

    The transaction is opened on `conn`, a connection of psycopg or asyncpg without an open transaction, or on a new
    connection to `dsn()`. The transaction is committed unless an exception leaves the block. If PostgreSQL rolled back
    instead, because a statement had failed, the scope raises PublishError. With `pooler`, no statement is prepared on a
    new connection: behind a transaction pooler, the next transaction might meet another client's prepared statement of
    the same name."""

    def __init__(self, conn: object, dsn: Callable[[], str], *, pooler: bool = False) -> None:
        # The type is checked on entering the block.
        self._conn: Any = conn
        self._dsn = dsn
        # Executions before a statement is prepared. 5 is psycopg's default.
        self._threshold = None if pooler else 5
        self._block: AbstractContextManager[Connection[Any]]
        self._async_block: AbstractAsyncContextManager[AsyncConnection[Any]]

    def __enter__(self) -> Connection[Any]:
        self._block = _open_own(self._dsn, self._threshold) if self._conn is None else _open_on(self._conn)
        return self._block.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        return self._block.__exit__(*raised)

    async def __aenter__(self) -> AsyncConnection[Any]:
        self._async_block = (
            _open_own_async(self._dsn, self._threshold) if self._conn is None else _open_on_async(self._conn)
        )
        return await self._async_block.__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._async_block.__aexit__(*raised)


@contextmanager
def _open_own(dsn: Callable[[], str], threshold: int | None) -> Iterator[Connection[Any]]:
    with psycopg.connect(dsn(), autocommit=True, prepare_threshold=threshold) as conn, _open_on(conn):
        yield conn


@asynccontextmanager
async def _open_own_async(dsn: Callable[[], str], threshold: int | None) -> AsyncIterator[AsyncConnection[Any]]:
    found = await asyncio.to_thread(dsn)
    connecting = AsyncConnection.connect(found, autocommit=True, prepare_threshold=threshold)
    async with await connecting as conn, _open_on_async(conn):
        yield conn


@contextmanager
def _open_on(conn: Connection[Any]) -> Iterator[Connection[Any]]:
    if not isinstance(conn, Connection):
        raise _build_library_error(integrations.sync_adapter_of(conn, transaction.SCOPE_REMEDIES))
    transaction.sync_pipeline(conn)
    transaction.check_not_open(conn)
    failed, marks = False, []
    with transaction_outcome.report_end(conn) as end:
        # Even in a pipeline, the end of this block waits for the answer to the COMMIT.
        with conn.transaction() as opened:
            yield conn
            failed = _has_failed(conn)
            if end.has_marks and _can_execute(conn):
                with OwnCursor(conn) as cursor:
                    marks = _READ_MARKS.run(cursor)
            if not failed:
                end.note_commit(marks)
        _check_not_lost(opened, end)
    if failed:
        raise PublishError(ROLLED_BACK_INSIDE)


@asynccontextmanager
async def _open_on_async(conn: Any) -> AsyncIterator[Any]:
    if not isinstance(conn, AsyncConnection):
        async with _open_by_adapter(conn):
            yield conn
        return
    await transaction.sync_pipeline_async(conn)
    transaction.check_not_open(conn)
    failed, marks = False, []
    async with transaction_outcome.report_end_async(conn) as end:
        async with conn.transaction() as opened:
            yield conn
            failed = _has_failed(conn)
            if end.has_marks and _can_execute(conn):
                async with AsyncOwnCursor(conn) as cursor:
                    marks = await _READ_MARKS.run_async(cursor)
            if not failed:
                end.note_commit(marks)
        _check_not_lost(opened, end)
    if failed:
        raise PublishError(ROLLED_BACK_INSIDE)


@asynccontextmanager
async def _open_by_adapter(conn: Any) -> AsyncIterator[None]:
    adapter = integrations.async_adapter_of(conn, transaction.SCOPE_REMEDIES)
    block = adapter.transaction()
    if block is None:
        raise _build_library_error(adapter)
    if await adapter.in_transaction():
        raise PublishError(transaction.ALREADY_OPEN)
    async with transaction_outcome.report_end_async(conn) as end, block:
        yield
        try:
            marks: Any = await adapter.execute(_READ_MARKS.statement.decode(), {})
            end.note_commit(marks)
        except Exception as error:
            if is_failed_transaction(error):
                raise PublishError(ROLLED_BACK_INSIDE) from error
            raise


def _build_library_error(adapter: BaseAdapter) -> PublishError:
    return PublishError(
        f"outbox.transaction(conn) takes no {type(adapter.conn).__qualname__}, because its library itself reports how "
        "a transaction ends: publish inside a transaction of that library"
    )


def _check_not_lost(opened: Transaction | AsyncTransaction, end: TransactionEnd) -> None:
    # OperationalError is raised if the connection was lost inside the block. psycopg ends the block silently if the
    # error was caught.
    if opened.status == opened.Status.FAILED:
        end.revoke_commit()
        raise psycopg.OperationalError("the connection was lost inside the transaction: nothing was committed")


def _has_failed(conn: AnyConnection) -> bool:
    """Return True if a COMMIT would roll back without an error."""
    # A statement failed before, and its error was caught.
    return conn.info.transaction_status == TransactionStatus.INERROR


def _can_execute(conn: AnyConnection) -> bool:
    return transaction.is_pipelined(conn) or conn.info.transaction_status == TransactionStatus.INTRANS
