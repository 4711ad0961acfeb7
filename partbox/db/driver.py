"""Connections and cursors whose methods are psycopg's own, even if an application has replaced them in psycopg.

Tracers such as `opentelemetry-instrument` and `ddtrace-run` replace psycopg's methods before partbox is imported. So
psycopg's source is executed once more beside the imported modules, and the methods are taken from there. The imported
modules stay patched, and the application's own connections are traced as ever."""

from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import FunctionType
from typing import Any, TypeVar

from psycopg.connection import Connection
from psycopg.connection_async import AsyncConnection
from psycopg.cursor import Cursor
from psycopg.cursor_async import AsyncCursor
from psycopg.rows import Row

Kind = TypeVar("Kind", bound=type)


def _with_methods_of(module: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that gives a psycopg subclass the unpatched methods of its base class."""
    # Tracers wrap `Connection.connect`, which then returns a proxy or a connection whose cursors change the text of
    # each statement, as sqlcommenter does. Others replace `Cursor.execute`. Methods that call `super()` or that a
    # decorator makes are inherited.
    # The decorator copies the methods of the base class from a fresh copy of `module`.
    spec = find_spec(module)
    assert spec is not None
    assert spec.loader is not None
    source = module_from_spec(spec)
    spec.loader.exec_module(source)

    def decorate(kind: Kind) -> Kind:
        base: Any = kind.__base__
        for name, method in vars(getattr(source, base.__name__)).items():
            # A class method hides its function.
            function: Any = getattr(method, "__func__", method)
            if isinstance(function, FunctionType) and not function.__closure__:
                setattr(kind, name, method)
        return kind

    return decorate


@_with_methods_of("psycopg.cursor")
class PlainCursor(Cursor[Row]):
    """A psycopg cursor that keeps its original methods when a library patches psycopg."""


@_with_methods_of("psycopg.cursor_async")
class AsyncPlainCursor(AsyncCursor[Row]):
    """A psycopg asyncio cursor that keeps its original methods when a library patches psycopg."""


@_with_methods_of("psycopg.connection")
class PlainConnection(Connection[Row]):
    """A psycopg connection that keeps its original methods when a library patches psycopg."""


@_with_methods_of("psycopg.connection_async")
class AsyncPlainConnection(AsyncConnection[Row]):
    """A psycopg asyncio connection that keeps its original methods when a library patches psycopg."""
