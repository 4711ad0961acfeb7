"""COPY below SQLAlchemy, which has none: by the driver, once SQLAlchemy has it inside the transaction."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.pq import TransactionStatus
from sqlalchemy.engine import Connection

from partbox.errors import PublishError
from partbox.publish.integrations.asyncpg import copied
from partbox.publish.steps import Copy
from partbox.publish.transaction import no_copy_left


def can_copy(on: Connection) -> bool:
    """True if its driver is one of those below."""
    return (on.dialect.driver, on.dialect.is_async) in _COPIES


def copy(on: Connection, step: Copy) -> int:
    """Copy the rows; return how many were written.

    Both must be in the transaction: what SQLAlchemy knows nothing of it does not commit, and where the driver has not
    sent its BEGIN yet PostgreSQL would commit at once.
    """
    if not _has_begun(on):
        on.exec_driver_sql("select 1")
    if not _has_begun(on):
        raise PublishError("SQLAlchemy has begun no transaction on the driver's connection: nothing is copied")
    return _COPIES[on.dialect.driver, on.dialect.is_async](on, step)


def _driver(on: Connection) -> Any:
    return on.connection.driver_connection


def _adapted(on: Connection) -> Any:
    """SQLAlchemy's synchronous form of that of an asynchronous driver."""
    return on.connection.dbapi_connection


def _has_begun(on: Connection) -> bool:
    """True if both SQLAlchemy and PostgreSQL are inside a transaction."""
    driver = _driver(on)
    if hasattr(driver, "info"):
        return on.in_transaction() and bool(driver.info.transaction_status == TransactionStatus.INTRANS)
    return on.in_transaction() and bool(driver.is_in_transaction())


@contextmanager
def _none_left(on: Connection) -> Iterator[Any]:
    """`no_copy_left`, after which SQLAlchemy must not try to roll back: its error would hide the interruption."""
    driver = _driver(on)
    try:
        with no_copy_left(driver):
            yield driver
    except BaseException as error:
        if driver.closed:
            on.invalidate(error)
        raise


def _by_psycopg(on: Connection, step: Copy) -> int:
    with _none_left(on) as driver, driver.cursor() as cursor:
        with cursor.copy(step.statement) as copy:
            for piece in step.lines():
                copy.write(piece)
        return int(cursor.rowcount)


def _by_async_psycopg(on: Connection, step: Copy) -> int:
    async def copied_to(driver: Any) -> int:
        async with driver.cursor() as cursor:
            async with cursor.copy(step.statement) as copy:
                for piece in step.lines():
                    await copy.write(piece)
            return int(cursor.rowcount)

    with _none_left(on):
        return int(_adapted(on).run_async(copied_to))


def _by_psycopg2(on: Connection, step: Copy) -> int:
    with _driver(on).cursor() as cursor:
        cursor.copy_expert(step.statement.decode(), io.StringIO("".join(step.lines())))
        return int(cursor.rowcount)


def _by_asyncpg(on: Connection, step: Copy) -> int:
    return int(_adapted(on).run_async(lambda driver: copied(driver, step)))


_COPIES = {
    ("psycopg", False): _by_psycopg,
    ("psycopg", True): _by_async_psycopg,
    ("psycopg2", False): _by_psycopg2,
    ("asyncpg", True): _by_asyncpg,
}
"""By the name of the driver, and whether it is asynchronous."""
