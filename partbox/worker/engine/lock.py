"""The decorator by which the engine's verbs take its lock."""

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
    """Hold the engine's lock, `self._lock`, while the method runs: one critical section, from first look to last note.

    For what is done once a page, a turn or a save. Beside each use stands why the method is one section.
    """

    @wraps(method)
    def locked(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock:  # guards all that the engine holds
            return method(self, *args, **kwargs)

    return locked
