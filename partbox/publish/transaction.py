"""Whether a connection is inside a transaction, so that the event and the caller's own writes share their fate."""

from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import PipelineStatus, TransactionStatus

from partbox.errors import PublishError

AnyConnection = Connection[Any] | AsyncConnection[Any]

_PROBLEMS = {
    TransactionStatus.IDLE: "there is no transaction: open one with `with conn.transaction():`, "
    "or with `outbox.transaction()`; on an autocommit connection the event would not share the fate of your changes",
    TransactionStatus.INERROR: "the transaction has failed: roll back, to a savepoint or the whole, and publish again",
    TransactionStatus.ACTIVE: "the connection is busy with another statement: finish it first",
    TransactionStatus.UNKNOWN: "the connection is closed or broken: open another",
}


def check_kind(conn: object, wanted: type[Connection[Any]] | type[AsyncConnection[Any]]) -> None:
    """Raise PublishError unless `conn` is a psycopg connection of the wanted kind."""
    if isinstance(conn, wanted):
        return
    name = f"{type(conn).__module__}.{type(conn).__qualname__}"
    if isinstance(conn, AsyncConnection):
        raise PublishError(f"{name} is asynchronous: await publish_async or publish_many_async")
    if isinstance(conn, Connection):
        raise PublishError(f"{name} is synchronous: call publish or publish_many")
    raise PublishError(f"a psycopg.{wanted.__name__} is needed, not a {name}: pass the connection itself")


def is_pipelined(conn: AnyConnection) -> bool:
    """Whether the connection is in pipeline mode, where COPY is not possible and the server answers later."""
    return conn.pgconn.pipeline_status != PipelineStatus.OFF


def needs_sync(conn: AnyConnection) -> bool:
    """Whether only the server can tell: a BEGIN may still wait in the pipeline."""
    return conn.autocommit and is_pipelined(conn) and conn.info.transaction_status != TransactionStatus.INTRANS


def check(conn: AnyConnection) -> None:
    """Raise PublishError unless what is sent now becomes part of a transaction that the caller ends.

    Without autocommit psycopg opens that transaction with the first statement, which may be ours.
    """
    status = conn.info.transaction_status
    implicit = not conn.autocommit and (status == TransactionStatus.IDLE or is_pipelined(conn))
    if status == TransactionStatus.INTRANS or (implicit and status not in _BROKEN):
        return
    raise PublishError(_PROBLEMS[status])


_BROKEN = (TransactionStatus.INERROR, TransactionStatus.UNKNOWN)
