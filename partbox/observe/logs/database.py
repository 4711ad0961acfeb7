"""The name of the database that log lines are about, on a node that works for several. A worker process has one
database, whereas each thread of the supervisor's process sets its own. The name holds no secrets."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_thread_database: ContextVar[str] = ContextVar("partbox_database", default="")
_process_database = ""


def get_log_database() -> str:
    """Return the database name to show in log lines of this thread, or "" if the node has only one database."""
    return _thread_database.get() or _process_database


@contextmanager
def log_for_database(name: str) -> Iterator[None]:
    """Add a database name to all log lines that this thread writes inside the `with` block."""
    token = _thread_database.set(name)
    try:
        yield
    finally:
        _thread_database.reset(token)


def set_log_database(name: str) -> None:
    """Add a database name to all log lines of this process from now on."""
    global _process_database  # noqa: PLW0603  one for each process
    _process_database = name
