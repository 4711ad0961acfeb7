"""`partbox --version`: the versions that an error report should name."""

import platform
from importlib.metadata import version

from psycopg import pq


def versions() -> str:
    """partbox, Python, psycopg and libpq, in one line."""
    return (
        f"partbox {version('partbox')}, Python {platform.python_version()}, "
        f"psycopg {version('psycopg')} ({pq.__impl__}), libpq {_libpq(pq.version())}"
    )


def _libpq(number: int) -> str:
    """ "17.4" of 170004."""
    return f"{number // 10_000}.{number % 10_000}"
