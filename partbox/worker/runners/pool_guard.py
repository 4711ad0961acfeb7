"""Refuse connection pools that are used from the loop of the handlers and from another event loop.

The connections of an async pool belong to the loop that opened them, and the pool is made for one thread. If two loops
use it, a request and a handler may share one connection and so one transaction, or the process crashes."""

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
    "`async def` handlers run in an event loop of their own here, not in your application's: enter the worker in the "
    "application's loop by `async with outbox.worker()`, or make a separate engine or client for the handlers, in "
    "`@outbox.lifespan` (see docs/frameworks.md)"
)
# Per module: the class of its pools, and the method that gives out a connection.
POOLS = {
    "sqlalchemy.pool": ("AsyncAdaptedQueuePool", "connect"),
    "asyncpg.pool": ("Pool", "acquire"),
    "psycopg_pool": ("AsyncConnectionPool", "getconn"),
}

handler_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""The loops in this process that run only handlers."""
shared_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""The application's loops that also run handlers."""
_guarded_modules: set[str] = set()
_owner_loops: WeakKeyDictionary[Any, asyncio.AbstractEventLoop] = WeakKeyDictionary()


def guard_pools(other_loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Make async connection pools raise an error when they are used from two event loops."""
    # The method by which each library gives out a connection is patched, once per process and only if handlers are
    # `async def` and have a loop of their own: in the application's loop they may use its pools. A pool that exists
    # when a worker starts in a running loop belongs to that loop. Any other pool belongs to the loop that uses it
    # first. The loop of handlers is refused pools of other loops, and other loops are refused pools of handlers. Loops
    # of the application are not guarded against each other.
    # This covers the pool libraries imported so far. Pools that exist already belong to `other_loop`.
    kinds = []
    for module, (name, method) in POOLS.items():
        if module in sys.modules:
            kinds.append(kind := getattr(sys.modules[module], name))
            if module not in _guarded_modules:
                _guarded_modules.add(module)
                setattr(kind, method, _wrap_method(getattr(kind, method)))
    if kinds and other_loop is not None and other_loop not in handler_loops:
        _assign_pools(other_loop, tuple(kinds))


def add_remedy(error: RuntimeError) -> RuntimeError:
    """Add a remedy to the text of an error about use in a different event loop. Return the error."""
    # Other errors are returned unchanged.
    if asyncio._get_running_loop() in shared_loops:
        return error
    # str(error) may fail.
    text = text_of(error)
    if "different loop" not in text and "different event loop" not in text:
        return error
    clearer = RuntimeError(f"{text}: {REMEDY}").with_traceback(error.__traceback__)
    clearer.__cause__ = error
    return clearer


def _wrap_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def checked(pool: Any, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio._get_running_loop()
        if loop is not None:
            _check_pool(pool, loop)
        return method(pool, *args, **kwargs)

    return checked


def _check_pool(pool: Any, loop: asyncio.AbstractEventLoop) -> None:
    before = _loop_of(pool)
    if before is None or before.is_closed():
        _assign_pool(pool, loop)
    elif before is not loop and (before in handler_loops or loop in handler_loops):
        raise PartboxError(f"this {type(pool).__name__} belongs to another event loop: {REMEDY}")


def _loop_of(pool: Any) -> asyncio.AbstractEventLoop | None:
    # A pool of asyncpg knows its loop, and cannot be weakly referenced.
    return getattr(pool, "_loop", None) or _owner_loops.get(pool)


def _assign_pools(loop: asyncio.AbstractEventLoop, kinds: tuple[type, ...]) -> None:
    # All existing pools belong to the application's event loop, so that a handler in another loop is refused when it
    # uses one later.
    for pool in [each for each in gc.get_objects() if issubclass(type(each), kinds)]:
        before = _loop_of(pool)
        if before is None or before.is_closed():
            _assign_pool(pool, loop)


def _assign_pool(pool: Any, loop: asyncio.AbstractEventLoop) -> None:
    if not hasattr(pool, "_loop"):
        _owner_loops[pool] = loop
