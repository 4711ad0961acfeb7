"""The kinds of transactions in which handlers may run, and the session class that a SQLAlchemy handler asks for. The
library of a kind is not imported until a handler of that kind is registered."""

from collections.abc import Container
from enum import Enum
from importlib import import_module
from inspect import Parameter
from typing import Any, Literal, get_origin

from partbox.callables import Call, is_async
from partbox.errors import RegistrationError
from partbox.handlers.annotations import annotations_of

Transactional = bool | Literal["sqlalchemy", "django"]

LIMITS = ("rate", "at_once", "limit_by", "circuit_by")
UNTYPED = (Parameter.empty, Any, object)
ALLOWED_VALUES = 'use True, "sqlalchemy" or "django"'
SQLALCHEMY = ("SQLAlchemy", "sqlalchemy.orm", "sqlalchemy")
GREENLET = ("greenlet", "greenlet", "'sqlalchemy[asyncio]'")
DJANGO = ("Django", "django.db", "django")
# The libraries of a kind: the name, the module whose import shows that the library is installed, and the name for pip.
LIBRARIES: dict[tuple[Transactional, bool], tuple[tuple[str, str, str], ...]] = {
    ("sqlalchemy", False): (SQLALCHEMY,),
    # pip installs SQLAlchemy 2.1 without greenlet.
    ("sqlalchemy", True): (SQLALCHEMY, GREENLET),
    ("django", False): (DJANGO,),
}


class TransactionKind(Enum):
    """The kinds of database transaction in which a handler can run, by library, and sync or async."""

    PSYCOPG = "a connection of psycopg"
    ASYNC_PSYCOPG = "an asynchronous connection of psycopg"
    SQLALCHEMY = "a session of SQLAlchemy"
    ASYNC_SQLALCHEMY = "an asynchronous session of SQLAlchemy"
    DJANGO = "Django's connection"


_KINDS = {
    (True, False): TransactionKind.PSYCOPG,
    (True, True): TransactionKind.ASYNC_PSYCOPG,
    ("sqlalchemy", False): TransactionKind.SQLALCHEMY,
    ("sqlalchemy", True): TransactionKind.ASYNC_SQLALCHEMY,
    ("django", False): TransactionKind.DJANGO,
}


def is_transactional(value: Any) -> bool:
    """Return True if a value is allowed for the handler option `transactional`."""
    # Allowed are a bool, "sqlalchemy" and "django".
    return isinstance(value, bool) or (isinstance(value, str) and (value, False) in LIBRARIES)


def trailing_arg_of(value: Transactional) -> str | None:
    """Return the name of the argument that a transactional handler takes after the event: "conn", "session" or None."""
    return {True: "conn", "sqlalchemy": "session"}.get(value)


def kind_of(transactional: Transactional, *, is_async: bool) -> TransactionKind | None:
    """Return the kind of database transaction that the handler option `transactional` asks for, or None."""
    # The kind depends on whether the handler is sync or async.
    return _KINDS[transactional, is_async] if transactional else None


def check_transactional(
    call: Call, transactional: Transactional, label: str, *, is_batch: bool, options: Container[str] = ()
) -> None:
    """Raise RegistrationError if a handler cannot run in a database transaction of the given kind."""
    # The error names the remedy. It depends on the options of the handler.
    if is_batch:
        raise RegistrationError(f"{label} takes lists, and a transactional handler takes one event: use on()")
    for limit in (each for each in LIMITS if each in options):
        raise RegistrationError(
            f"{label} is transactional and has {limit}, but such handlers run in the order of their "
            f"partition, where a handler that waits for its turn would hold up all others: leave out {limit}"
        )
    if transactional == "django" and is_async(call):
        raise RegistrationError(
            f'{label} is async, and transactional="django" runs in transaction.atomic(), which is synchronous: make it '
            "a plain def"
        )
    for name, module, package in LIBRARIES.get((transactional, is_async(call)), ()):
        try:
            import_module(module)
        except ModuleNotFoundError:
            kind = f'{"async and " if module == "greenlet" else ""}transactional="{transactional}"'
            raise RegistrationError(f"{label} is {kind}, and {name} is not installed: pip install {package}") from None


def session_class_of(call: Call, at: int, label: str) -> type:
    """Return the SQLAlchemy session class that the handler's parameter is annotated with."""
    # The parameter is at position `at`. Without an annotation: Session, or AsyncSession for an `async def`.
    # RegistrationError is raised for other annotations.
    usual: type
    scoped: type
    if is_async(call):
        from sqlalchemy.ext.asyncio import AsyncSession as usual
        from sqlalchemy.ext.asyncio import async_scoped_session as scoped
    else:
        from sqlalchemy.orm import Session as usual
        from sqlalchemy.orm import scoped_session as scoped
    annotation = annotations_of(call, at + 1, None, label)[at]
    kind = get_origin(annotation) or annotation
    if kind in UNTYPED:
        return usual
    if isinstance(kind, type) and issubclass(kind, (usual, scoped)):
        return kind
    raise RegistrationError(
        f"{label} asks for {getattr(kind, '__qualname__', kind)} as its session: annotate that parameter with "
        f"{usual.__name__} of SQLAlchemy, a subclass of it, or its scoped session"
    )
