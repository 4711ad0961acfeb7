"""Connections and cursors of our own, with the methods of psycopg, whatever an application puts in their place.

Tracers wrap `Connection.connect`, which then returns a proxy, or a connection whose cursors change the text of each
statement, as sqlcommenter does; others replace `Cursor.execute`. `opentelemetry-instrument` and `ddtrace-run` do so
before anything of ours is imported. So the methods are those of psycopg's source, run once more beside the modules that
are imported. Nothing is undone in those: connections that the application opens are traced as ever.

Methods that call `super()`, or that a decorator makes, are inherited.
"""

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
    """Give a class the methods that its base has in the source of this module."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.loader is not None
    source = module_from_spec(spec)
    spec.loader.exec_module(source)

    def decorate(kind: Kind) -> Kind:
        base: Any = kind.__base__
        for name, method in vars(getattr(source, base.__name__)).items():
            function: Any = getattr(method, "__func__", method)  # of a class method
            if isinstance(function, FunctionType) and not function.__closure__:
                setattr(kind, name, method)
        return kind

    return decorate


@_with_methods_of("psycopg.cursor")
class PlainCursor(Cursor[Row]):
    """A cursor that no patch of an application has changed."""


@_with_methods_of("psycopg.cursor_async")
class AsyncPlainCursor(AsyncCursor[Row]):
    """`PlainCursor` of an asynchronous connection."""


@_with_methods_of("psycopg.connection")
class PlainConnection(Connection[Row]):
    """A connection that no patch of an application has changed; its cursors are what `connect` is told."""


@_with_methods_of("psycopg.connection_async")
class AsyncPlainConnection(AsyncConnection[Row]):
    """`PlainConnection`, asynchronous."""
