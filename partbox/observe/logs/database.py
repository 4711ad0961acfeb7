"""The database of a log line, if a node works for several: a name for people, without secrets.

A worker process has one. Each thread of the supervisor's process sets its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_of_thread: ContextVar[str] = ContextVar("partbox_database", default="")
_of_process = ""


def current() -> str:
    """The name of the current database; empty if there is only one."""
    return _of_thread.get() or _of_process


@contextmanager
def about(name: str) -> Iterator[None]:
    """Set the database of this thread's log lines for a block."""
    token = _of_thread.set(name)
    try:
        yield
    finally:
        _of_thread.reset(token)


def set_log_database(name: str) -> None:
    """Set the database of this process's log lines."""
    global _of_process  # noqa: PLW0603  one a process
    _of_process = name
