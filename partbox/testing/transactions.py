"""Calls of transactional handlers without a worker: in the transaction of a test, each in a savepoint of it.

What ends with the transaction, such as the hooks of a session, is left to the test that ends it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from partbox.db.deadline import NEVER
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.handlers.transactional import TransactionKind
from partbox.outcomes import Done
from partbox.testing.statements import psycopg_of
from partbox.worker.runners.effects.effects import Undone
from partbox.worker.runners.endpoint import Endpoint

Savepoint = AbstractContextManager[tuple[Any, ...]]
"""Gives what a handler gets behind its event."""


def savepoint_of(endpoint: Endpoint, conn: Any) -> Savepoint:
    """The savepoint for a handler of this kind on `conn`. PartboxError, with the remedy, if `conn` has none for it."""
    name = endpoint.handler.name
    if endpoint.transaction is TransactionKind.DJANGO:
        return _of_django()
    if endpoint.handler.is_async:
        raise PartboxError(
            f"{name} is async and transactional, and a connection belongs to the event loop that made it: commit what "
            "was published, and use drain()"
        )
    if conn is None:
        raise PartboxError(f"{name} is transactional: pass the connection that it is to use, conn=…")
    if endpoint.transaction is TransactionKind.PSYCOPG:
        return nullcontext((psycopg_of(conn),))
    from sqlalchemy.engine import Connection

    found = conn.connection() if callable(getattr(conn, "connection", None)) else conn
    if isinstance(found, Connection):
        return _of_sqlalchemy(found, endpoint.handler)
    raise PartboxError(
        f"{name} gets a session of SQLAlchemy: pass a session or a connection of that, whose transaction it is to use, "
        "conn=…"
    )


def called(endpoint: Endpoint, event: DeliveredEvent, savepoint: Savepoint) -> Any:
    """Return what the handler returns, or raise what it raises."""
    result: Any = None
    try:
        with savepoint as given:
            result = endpoint.call(event, *given)
            if result is not None and not isinstance(result, Done):
                raise Undone
    except Undone:
        return result
    return result


@contextmanager
def _of_django() -> Iterator[tuple[()]]:
    from partbox.worker.runners.effects.django import connection, within

    with within(connection(), NEVER):
        yield ()


@contextmanager
def _of_sqlalchemy(on: Any, handler: Handler) -> Iterator[tuple[Any, ...]]:
    from partbox.worker.runners.effects.sqlalchemy import session_for

    with session_for(on, handler) as (here, given):
        yield (given,)
        here.prepare()
