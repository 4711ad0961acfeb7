"""Handlers that are to run in a transaction: what they get, and what is refused when they are registered."""

import sys
from typing import Any

import pytest
from psycopg import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session
from sqlmodel import Session as ModelSession
from sqlmodel.ext.asyncio.session import AsyncSession as AsyncModelSession

from partbox import Outbox, RegistrationError
from partbox.handlers.transactional import TransactionKind


def alone(event): ...  # type: ignore[no-untyped-def]
def with_more(event, given): ...  # type: ignore[no-untyped-def]
def with_connection(event: Any, conn: Connection) -> None: ...
def with_session(event: Any, session: Session) -> None: ...
def with_models(event: Any, session: ModelSession) -> None: ...
def with_scoped(event: Any, session: scoped_session[Session]) -> None: ...
async def awaited(event: Any) -> None: ...


async def awaited_more(event: Any, given: Any) -> None: ...
async def with_async_session(event: Any, session: AsyncSession) -> None: ...
async def with_async_models(event: Any, session: AsyncModelSession) -> None: ...
async def with_session_async_wrong(event: Any, session: Session) -> None: ...


class Handling:
    def handle(self, event: Any, session: ModelSession) -> None: ...


def registration(handler: Any, transactional: Any, **options: Any) -> Any:
    outbox = Outbox("postgresql://nowhere")
    outbox.on("OrderPlaced", transactional=transactional, **options)(handler)
    (found,) = outbox.handlers._registered.values()
    return found.resolve_options(outbox.settings)


@pytest.mark.parametrize(
    ("handler", "transactional", "kind", "session"),
    [
        (with_more, True, TransactionKind.PSYCOPG, None),
        (with_connection, True, TransactionKind.PSYCOPG, None),
        (with_more, "sqlalchemy", TransactionKind.SQLALCHEMY, Session),
        (with_session, "sqlalchemy", TransactionKind.SQLALCHEMY, Session),
        (with_models, "sqlalchemy", TransactionKind.SQLALCHEMY, ModelSession),
        (with_scoped, "sqlalchemy", TransactionKind.SQLALCHEMY, scoped_session),
        (Handling(), "sqlalchemy", TransactionKind.SQLALCHEMY, ModelSession),
        (awaited_more, True, TransactionKind.ASYNC_PSYCOPG, None),
        (awaited_more, "sqlalchemy", TransactionKind.ASYNC_SQLALCHEMY, AsyncSession),
        (with_async_session, "sqlalchemy", TransactionKind.ASYNC_SQLALCHEMY, AsyncSession),
        (with_async_models, "sqlalchemy", TransactionKind.ASYNC_SQLALCHEMY, AsyncModelSession),
        (alone, "django", TransactionKind.DJANGO, None),
        (alone, False, None, None),
    ],
)
def test_a_registration_knows_its_kind_of_transaction_and_its_session_class(
    handler: Any, transactional: Any, kind: Any, session: Any
) -> None:
    found = registration(handler, transactional)
    assert found.transaction is kind
    assert found.session is session


@pytest.mark.parametrize(
    ("handler", "transactional", "said"),
    [
        (with_more, "sqlalchmy", 'transactional of .* cannot be \'sqlalchmy\': use True, "sqlalchemy" or "django"'),
        (with_more, 2, 'cannot be 2: use True, "sqlalchemy" or "django"'),
        (alone, True, "must take exactly two positional arguments, the event and the connection or session"),
        (alone, "sqlalchemy", "must take exactly two positional arguments, the event and the connection or session"),
        (with_connection, "sqlalchemy", "asks for Connection as its session: annotate that parameter with Session"),
        (with_more, "django", "must take exactly one positional argument, the event"),
        (awaited, "django", 'is async, and transactional="django" .* is synchronous: make it a plain def'),
        (with_session_async_wrong, "sqlalchemy", "asks for Session as its session: .* with AsyncSession of SQLAlchemy"),
    ],
)
def test_an_impossible_kind_of_transaction_is_refused_with_the_remedy(
    handler: Any, transactional: Any, said: str
) -> None:
    with pytest.raises(RegistrationError, match=said) as refused:
        registration(handler, transactional)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("transactional", [True, "sqlalchemy", "django"])
def test_a_transactional_batch_handler_is_refused(transactional: Any) -> None:
    outbox = Outbox("postgresql://nowhere")
    with pytest.raises(
        RegistrationError, match=r"takes lists, and a transactional handler takes one event: use on\(\)"
    ):
        outbox.on_batch("OrderPlaced", transactional=transactional)(alone if transactional == "django" else with_more)


@pytest.mark.parametrize(("transactional", "module"), [("sqlalchemy", "sqlalchemy.orm"), ("django", "django.db")])
def test_a_library_that_is_not_installed_is_named(monkeypatch: Any, transactional: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RegistrationError, match=f"is not installed: pip install {transactional}$"):
        registration(alone if transactional == "django" else with_more, transactional)
