"""A calendar for each node that can jump, by libfaketime where it is installed. The monotonic clocks stay true."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

PLACES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
PROBE: Final = """
import threading, time
began = time.monotonic()
time.sleep(0.05), threading.Event().wait(0.05)
print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic() - began)
"""
# Code that Python runs first. libfaketime 0.9.10 takes the end of a sleep, a monotonic time, for a calendar time, and
# the call fails. `select` gets a duration instead.
SLEEP: Final = """
import select, time
time.sleep = lambda seconds: select.select((), (), (), seconds) and None
"""
TIMEOUT = 20.0  # seconds
JUMP: Final = 3600.0  # seconds of the probe
FARTHEST: Final = 86_400.0  # seconds that a fault sets a calendar ahead or back at most


class Clock:
    """A file with the offset of the calendar of all processes that have its `surroundings`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._first = file.parent / "first"
        self._first.mkdir(exist_ok=True)
        (self._first / "sitecustomize.py").write_text(SLEEP)
        self.set(0.0)

    def set(self, offset: float) -> None:
        """Shift the calendar by seconds ahead of the true time, or behind it if negative."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+.3f}s\n")
        new.replace(self._file)

    @property
    def surroundings(self) -> Mapping[str, str]:
        """The environment variables of the node."""
        return {
            "LD_PRELOAD": _library() or "",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(self._first), os.environ.get("PYTHONPATH")))),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            # On by default for old C libraries. With a newer one, threads that wait for a time would wake again and
            # again, or never.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


def lacking(folder: Path) -> str | None:
    """Return the reason why calendars cannot jump here, or None if they can."""
    if _library() is None:
        return "libfaketime is not installed (Debian: apt install libfaketime)"
    clock = Clock(folder / "probe.clock")
    clock.set(JUMP)
    try:
        wall, monotonic, boottime, slept = _probed(clock)
    except (ValueError, subprocess.SubprocessError):
        return "this libfaketime does not work with Python"
    steady = (monotonic, time.monotonic()), (boottime, time.clock_gettime(time.CLOCK_BOOTTIME))
    far = abs(wall - time.time() - JUMP) > JUMP / 2 or any(abs(here - there) > JUMP / 2 for here, there in steady)
    if far or not 0.1 <= slept < TIMEOUT:
        return "this libfaketime cannot change the calendar alone"
    return None


def _probed(clock: Clock) -> list[float]:
    command = [sys.executable, "-c", PROBE]
    found = subprocess.run(
        command, env={**os.environ, **clock.surroundings}, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    return [float(word) for word in found.stdout.split()]


@cache
def _library() -> str | None:
    root = Path("/")
    return next((str(path) for place in PLACES for path in sorted(root.glob(place.lstrip("/")))), None)
