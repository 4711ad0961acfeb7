"""Calls that some operating systems or Python versions lack, each with its replacement. Workers run on Linux and macOS.
On Windows, partbox can be imported, publishes, and serves tests, but refuses to run workers."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from partbox.errors import PartboxError, SettingsError

if sys.version_info >= (3, 14):
    from uuid import uuid7 as uuid7
else:
    from uuid_utils.compat import uuid7 as uuid7

IS_WINDOWS: Final = sys.platform == "win32"

# The signal of a terminal that closes.
HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
# Signals that ask a command to stop.
STOP_SIGNALS: Final = tuple(number for number in (signal.SIGINT, signal.SIGTERM, HANGUP) if number is not None)


# While a machine is suspended, macOS's CLOCK_MONOTONIC goes on and its time.monotonic stops. On Linux both stop.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
# Returns the seconds since boot, suspended time included.
boottime = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)


def call_in_forked_children(call: Callable[[], None]) -> None:
    """Register a function to call in every process that is forked from this one. Windows does not fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
# Thousandths of the memory, more than a supervisor uses.
OOM_BONUS: Final = 200


def die_before_parent() -> None:
    """Make Linux kill this process before its parent when memory runs out."""
    # The kernel may kill a second process while the largest one ends but has not returned its memory yet.
    # The file does not exist or cannot be written here.
    with suppress(OSError):
        OOM_SCORE.write_text(str(min(1_000, int(OOM_SCORE.read_text()) + OOM_BONUS)))


def refuse_on_windows(remedy: str) -> None:
    """Raise PartboxError with this remedy if the program runs on Windows."""
    if IS_WINDOWS:
        raise PartboxError(remedy)


def require_workers() -> None:
    """Raise PartboxError if partbox's workers cannot run on this operating system."""
    refuse_on_windows("workers run on Linux and macOS: use WSL or a container")


# The libraries of the extra `worker`, by module.
_WORKER_LIBRARIES: Final = {
    "multiprocess": "multiprocess",
    "prometheus_client": "prometheus-client",
    "psutil": "psutil",
    "rich": "rich",
    "typer": "typer",
}


def describe_missing(error: ImportError) -> str | None:
    """Return one line with the remedy if a library of partbox is not installed, or None for any other error."""
    if "no pq wrapper available" in str(error):
        return 'psycopg needs libpq: pip install "partbox[binary]", or install libpq from the packages of this machine'
    name = _WORKER_LIBRARIES.get(error.name or "")
    return name and f'the command line needs {name}: pip install "partbox[worker]"'


def library(module: str, extra: str, need: str) -> Any:
    """Import the module of an optional extra. Raise SettingsError with `need` and the remedy if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            # A library that the module itself needs is missing.
            raise
        raise SettingsError(f"{need}: pip install 'partbox[{extra}]'") from None
