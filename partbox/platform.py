"""Operating systems and Pythons differ: here is each call that one of them lacks, and what is done there instead.

Workers run on Linux and macOS. On Windows partbox imports, publishes and serves tests; workers are refused.
"""

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

HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""The signal of a terminal that closes."""
STOP_SIGNALS: Final = tuple(number for number in (signal.SIGINT, signal.SIGTERM, HANGUP) if number is not None)
"""The signals that ask a command to stop."""


# While a machine is suspended macOS's CLOCK_MONOTONIC goes on and its time.monotonic stops; on Linux both stop.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
boottime = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
"""Seconds since boot, suspended time included."""


def call_in_forked_children(call: Callable[[], None]) -> None:
    """Have this called in every process that is forked from this one. Nothing is forked on Windows."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
OOM_BONUS: Final = 200  # thousandths of the memory: more than a supervisor has


def die_before_parent() -> None:
    """Let Linux, when memory runs out, kill this process sooner than the one that started it.

    While the largest process ends, but has not given back its memory yet, the kernel may kill another one.
    """
    with suppress(OSError):  # there is no such file, or it may not be written here
        OOM_SCORE.write_text(str(min(1_000, int(OOM_SCORE.read_text()) + OOM_BONUS)))


def refuse_on_windows(remedy: str) -> None:
    """PartboxError with this remedy on Windows."""
    if IS_WINDOWS:
        raise PartboxError(remedy)


def require_workers() -> None:
    """PartboxError where no worker can run."""
    refuse_on_windows("workers run on Linux and macOS: use WSL or a container")


def library(module: str, extra: str, need: str) -> Any:
    """The module of an extra; SettingsError, the `need` with its remedy, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise  # a library that the module itself needs
        raise SettingsError(f"{need}: pip install 'partbox[{extra}]'") from None
