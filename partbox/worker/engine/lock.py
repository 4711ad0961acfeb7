"""The decorator of engine methods that take the engine's lock."""

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Concatenate, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _HasLock(Protocol):
    _lock: Lock


_S = TypeVar("_S", bound=_HasLock)


def under_lock(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a method so that it holds the engine's lock, `self._lock`, while it runs."""
    # The method is one critical section from its first look at the state to its last change. This is meant for methods
    # that are called once for a page, a turn or a save.

    @wraps(method)
    def locked(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked
