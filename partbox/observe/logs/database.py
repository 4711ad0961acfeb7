"""The name of the database that log lines are about, on a node that works for several. A worker process has one
database, whereas each thread of the supervisor's process sets its own. The name holds no secrets."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_of_thread: ContextVar[str] = ContextVar("partbox_database", default="")
_of_process = ""


def current() -> str:
    """Return the database name to show in log lines of this thread, or "" if the node has only one database."""
    return _of_thread.get() or _of_process


@contextmanager
def about(name: str) -> Iterator[None]:
    """Add a database name to all log lines that this thread writes inside the `with` block."""
    token = _of_thread.set(name)
    try:
        yield
    finally:
        _of_thread.reset(token)


def set_log_database(name: str) -> None:
    """Add a database name to all log lines of this process from now on."""
    global _of_process  # noqa: PLW0603  one for each process
    _of_process = name
