"""The database that a log line is about, where a node works for several: a name for people, without secrets.

A worker process has one. Threads of the supervisor's process say which is theirs; a thread that it starts says so anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_of_thread: ContextVar[str] = ContextVar("partbox_database", default="")
_of_process = ""


def current() -> str:
    """Its name; an empty text where there is but one."""
    return _of_thread.get() or _of_process


@contextmanager
def about(name: str) -> Iterator[None]:
    """Name the database that this thread logs about in the block."""
    token = _of_thread.set(name)
    try:
        yield
    finally:
        _of_thread.reset(token)


def work_for(name: str) -> None:
    """Name the database that this process logs about from now on."""
    global _of_process
    _of_process = name
