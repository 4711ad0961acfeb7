"""Refuses pools that are used from the event loop of the handlers and from another one.

The connections of an asynchronous pool belong to the loop that opened them, and the pool is for one thread. Used from a
second loop, a request and a handler share one connection and so one transaction, or the process crashes.

`guard_pools` changes the method by which each library gives out a connection, once per process and only where handlers
are `async def` and have a loop of their own; in the application's loop they use what the application uses. A pool that
exists when a worker starts, which was made in a running loop, is of that loop, any other of the loop that uses it
first. A loop of handlers alone is refused the pool of another loop, and any loop a pool of handlers; what loops of the
application do among each other is its own business.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from partbox.errors import PartboxError
from partbox.text.printing import text_of

REMEDY = (
    "`async def` handlers run in an event loop of their own here, beside your application's: enter the worker there by "
    "`async with outbox.worker()`, or make them an engine or client of their own, in `@outbox.lifespan` "
    "(see docs/frameworks.md)"
)
POOLS = {
    "sqlalchemy.pool": ("AsyncAdaptedQueuePool", "connect"),
    "asyncpg.pool": ("Pool", "acquire"),
    "psycopg_pool": ("AsyncConnectionPool", "getconn"),
}
"""The class of each library's pools, and the method that gives out a connection, by the module that has it."""

handler_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""The loops of handlers alone in this process."""
shared_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""The application's loops that run handlers, too."""
_guarded_modules: set[str] = set()
_owner_loops: WeakKeyDictionary[Any, asyncio.AbstractEventLoop] = WeakKeyDictionary()


def guard_pools(other_loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Refuse from now on what is used from two loops, of the libraries that are imported by now.

    The pools that there are belong to the loop `other_loop`, the application's.
    """
    kinds = []
    for module, (name, method) in POOLS.items():
        if module in sys.modules:
            kinds.append(kind := getattr(sys.modules[module], name))
            if module not in _guarded_modules:
                _guarded_modules.add(module)
                setattr(kind, method, _checked_method(getattr(kind, method)))
    if kinds and other_loop is not None and other_loop not in handler_loops:
        _assign_pools(other_loop, tuple(kinds))


def add_remedy(error: RuntimeError) -> RuntimeError:
    """The error, with the remedy if it says that something belongs to another event loop, the application's."""
    if asyncio._get_running_loop() in shared_loops:
        return error
    text = text_of(error)  # its own str may fail
    if "different loop" not in text and "different event loop" not in text:
        return error
    clearer = RuntimeError(f"{text}: {REMEDY}").with_traceback(error.__traceback__)
    clearer.__cause__ = error
    return clearer


def _checked_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def checked(pool: Any, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio._get_running_loop()
        if loop is not None:
            _check_pool(pool, loop)
        return method(pool, *args, **kwargs)

    return checked


def _check_pool(pool: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Raise PartboxError if it belongs to another loop that lives, and one of the two is of handlers."""
    before = _loop_of(pool)
    if before is None or before.is_closed():
        _assign_pool(pool, loop)
    elif before is not loop and (before in handler_loops or loop in handler_loops):
        raise PartboxError(f"this {type(pool).__name__} belongs to another event loop: {REMEDY}")


def _loop_of(pool: Any) -> asyncio.AbstractEventLoop | None:
    return getattr(pool, "_loop", None) or _owner_loops.get(pool)  # asyncpg's knows it, and has no weak references


def _assign_pools(loop: asyncio.AbstractEventLoop, kinds: tuple[type, ...]) -> None:
    """Give the application's loop the pools that there are: whoever is first, it is a handler that is refused."""
    for pool in [each for each in gc.get_objects() if issubclass(type(each), kinds)]:
        before = _loop_of(pool)
        if before is None or before.is_closed():
            _assign_pool(pool, loop)


def _assign_pool(pool: Any, loop: asyncio.AbstractEventLoop) -> None:
    if not hasattr(pool, "_loop"):
        _owner_loops[pool] = loop
