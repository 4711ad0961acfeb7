"""Check that a connection is inside a transaction, so that the event commits together with the caller's writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import PipelineStatus, TransactionStatus

from partbox.errors import PublishError
from partbox.publish.failures import TRANSACTION_FAILED

AnyConnection = Connection[Any] | AsyncConnection[Any]

_PROBLEMS = {
    TransactionStatus.IDLE: "there is no transaction: open one with `with conn.transaction():`, "
    "or with `outbox.transaction()`; on an autocommit connection the event would not share the fate of your changes",
    TransactionStatus.INERROR: TRANSACTION_FAILED,
    TransactionStatus.ACTIVE: "the connection is busy with another statement: finish it first",
    TransactionStatus.UNKNOWN: "the connection is closed or broken: open another",
}

ALREADY_OPEN = (
    "a transaction is already open on this connection, and outbox.transaction(conn) opens the outermost one: "
    "commit or roll back first; inside it `with conn.transaction():` makes savepoints"
)

PUBLISH_REMEDIES = ("call publish or publish_many", "await publish_async or publish_many_async")
SCOPE_REMEDIES = ("use `with outbox.transaction(conn):`", "use `async with outbox.transaction(conn):`")


def is_pipelined(conn: AnyConnection) -> bool:
    # In pipeline mode, COPY is impossible and answers arrive later.
    return conn.pgconn.pipeline_status != PipelineStatus.OFF


def is_status_uncertain(conn: AnyConnection) -> bool:
    """Return True if the connection's transaction status may be out of date."""
    # A BEGIN that the application sent may still be in the pipeline.
    return (
        conn.autocommit
        and is_pipelined(conn)
        and conn.pgconn.transaction_status != TransactionStatus.INTRANS
        and not _is_in_block(conn)
    )


def _is_in_block(conn: AnyConnection) -> bool:
    """Return True if the connection is inside a `with conn.transaction():` block."""
    # There a BEGIN has certainly been sent. Only a private counter of psycopg says so without waiting for the server.
    # If another version lacks the counter, the caller waits.
    return getattr(conn, "_num_transactions", 0) > 0


def refresh_status(conn: Connection[Any]) -> None:
    """Update the known transaction status of a psycopg connection, and wait for pending answers if needed."""
    # The function waits for the answers in the connection's pipeline if the status depends on them.
    if is_status_uncertain(conn):
        sync_pipeline(conn)


async def refresh_status_async(conn: AsyncConnection[Any]) -> None:
    # The function waits for the answers in the connection's pipeline if the status depends on them.
    if is_status_uncertain(conn):
        await sync_pipeline_async(conn)


def sync_pipeline(conn: Connection[Any]) -> None:
    """Wait for the answers to all statements in the connection's pipeline. Raise an error among them."""
    if is_pipelined(conn):
        # Entering a nested pipeline waits for the server's answers.
        with conn.pipeline():
            pass


async def sync_pipeline_async(conn: AsyncConnection[Any]) -> None:
    if is_pipelined(conn):
        async with conn.pipeline():
            pass


def check_open(conn: AnyConnection) -> None:
    """Raise PublishError unless the connection is in a transaction that the caller ends."""
    # An event published now would become part of it. Without autocommit, psycopg opens the transaction with the first
    # statement, which may be the publish.
    status = conn.pgconn.transaction_status
    if status == TransactionStatus.INTRANS:
        return
    if is_pipelined(conn):
        is_broken = status in (TransactionStatus.INERROR, TransactionStatus.UNKNOWN)
        begun = not is_broken and (not conn.autocommit or _is_in_block(conn))
    else:
        begun = not conn.autocommit and status == TransactionStatus.IDLE
    if not begun:
        raise PublishError(_PROBLEMS[TransactionStatus(status)])


def check_not_open(conn: AnyConnection) -> None:
    """Raise PublishError if a transaction is already open on the connection."""
    # A transaction begun next would not be the outermost.
    status = conn.info.transaction_status
    if status == TransactionStatus.IDLE:
        return
    if status != TransactionStatus.INTRANS:
        raise PublishError(_PROBLEMS[status])
    raise PublishError(ALREADY_OPEN)


@contextmanager
def closing_broken_copy(conn: AnyConnection) -> Iterator[None]:
    """Close the psycopg connection if the COPY in the block was interrupted and is still in progress."""
    # psycopg ends a COPY by itself once the first row was sent. If a cancelled request interrupts the COPY before that,
    # the connection accepts no other statement, not even ROLLBACK, and keeps the locks of its transaction until it is
    # closed.
    try:
        yield
    except BaseException:
        if conn.pgconn.transaction_status == TransactionStatus.ACTIVE:
            conn.pgconn.finish()
        raise


def check_driver_status(driver: Any) -> None:
    """Raise PublishError if a psycopg or psycopg2 connection cannot execute a statement now."""
    # Another library such as SQLAlchemy uses the connection.
    status = TransactionStatus(driver.info.transaction_status)
    if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        raise PublishError(_PROBLEMS[status])
