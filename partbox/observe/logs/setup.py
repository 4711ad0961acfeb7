"""Sets up logging in `partbox worker` and in worker processes; an application's own setup is left alone."""

import logging
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exc
from typing import Literal

from partbox.observe.logs.formats import JsonLines, TextLines, indented
from partbox.observe.logs.log_event import log_event
from partbox.settings import Settings, strays
from partbox.text.secrets import masked
from partbox.text.wording import counted

log = logging.getLogger("partbox")

PATIENCE = 0.5  # seconds that a caller waits for its line, until the reader counts as stalled
KEPT = 256  # lines that wait for a stalled reader


class Outlet:
    """Writes lines to a file descriptor whose reader may stall; `note` makes the line about a number of lost ones.

    A thread of its own writes. A caller waits until its line is written, so that the last lines of a dying process are
    not lost; but not for long: once the reader has stalled, nobody waits any more. Some lines are kept then, further
    ones are counted, and the count is written when the reader goes on.
    """

    def __init__(self, fd: int, note: Callable[[int], bytes]) -> None:
        self._fd = fd
        self._note = note
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        # Reentrant, as the lock of a logging handler: a signal's handler may log.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._started = self._stuck = False
        self._taken = self._written = self._lost = 0

    def write(self, line: bytes) -> None:
        """Write the line, or keep it for later, or count it. Any thread; waits for `PATIENCE` at most."""
        if self._pid != os.getpid():
            self._reset()  # forked: the thread is the parent's, and so are the lines that wait
        with self._changed:
            if len(self._waiting) >= KEPT:
                self._lost += 1
                return
            self._waiting.append(line)
            self._taken += 1
            mine = self._taken
            self._changed.notify_all()
            if not self._started:
                threading.Thread(target=self._run, name="partbox-log", daemon=True).start()
                self._started = True
            if not self._stuck:
                self._stuck = not self._changed.wait_for(lambda: self._written >= mine, PATIENCE)

    def flush(self) -> None:
        """Wait until every line is out, for `PATIENCE` at most."""
        with self._changed:
            if self._pid == os.getpid():
                self._changed.wait_for(lambda: self._written == self._taken and not self._lost, PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._lost)
                lost, line = self._lost, self._waiting[0] if self._waiting else b""
            self._put(line or self._note(lost))
            with self._changed:
                if line:
                    self._waiting.popleft()
                    self._written += 1
                else:
                    self._lost -= lost
                self._stuck = self._stuck and bool(self._waiting or self._lost)
                self._changed.notify_all()

    def _put(self, line: bytes) -> None:
        """Write the whole line, however long that takes; drop it if there is no reader."""
        with suppress(OSError):
            while line:
                try:
                    line = line[os.write(self._fd, line) :]
                except BlockingIOError:  # another process that shares it made it non-blocking
                    select.select((), (self._fd,), ())


Format = Literal["text", "json"]

_said: set[str] = set()  # of strays


class StderrHandler(logging.Handler):
    """Writes to standard error; if its reader stalls, lines are lost, and delivery goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._outlet = Outlet(sys.stderr.fileno(), self._lost_lines)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # not `handleError`, which would wait for the reader
            line = masked(indented(format_exc())).encode(errors="backslashreplace")
        self._outlet.write(line)

    def flush(self) -> None:
        self._outlet.flush()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _lost_lines(self, count: int) -> bytes:
        text = "%s before this one lost: nobody read the standard error output"
        more = {"event": "partbox.log_lines_lost", "lines": count}
        log = logging.getLogger("partbox.log")
        return self._line(
            log.makeRecord(log.name, logging.WARNING, "", 0, text, (counted(count, "log line"),), None, extra=more)
        )


def configure(format: Format, level: int | None = None) -> None:
    """Log to standard error in this format and from this level; None: INFO, or the present level.

    A second call changes both. An application's own setup is left as it is.
    """
    root = logging.getLogger()
    ours = next((each for each in root.handlers if isinstance(each.formatter, TextLines | JsonLines)), None)
    if ours is None:
        if root.handlers:
            return
        ours = StderrHandler() if _may_block() else logging.StreamHandler()
        root.addHandler(ours)
        level = logging.INFO if level is None else level
    if level is not None:
        root.setLevel(level)
    ours.setFormatter(JsonLines() if format == "json" else TextLines())


def level_said(settings: Settings) -> int | None:
    """The level that was set; None for the default, which overrides no setup of an application."""
    said = settings.origins["log_level"] != "default"
    return logging.getLevelNamesMapping()[settings.log_level.upper()] if said else None


def level_of(settings: Settings) -> int:
    """The level of worker processes: the setting, else that of this process."""
    said = level_said(settings)
    return logging.getLogger().getEffectiveLevel() if said is None else said


def tell_strays() -> None:
    """Warn of variables of the environment that look like settings and are none; the same text once in a process.

    They are no errors: Kubernetes adds PARTBOX_SERVICE_HOST and the like to containers beside a service of that name.
    """
    text = strays()
    if text is not None and text not in _said:
        _said.add(text)
        log_event(log, "unknown_variables", "%s", text)


def pass_over() -> str | None:
    """The text that `tell_strays` would log; from now on it counts as logged."""
    text = strays()
    _said.update(() if text is None else (text,))
    return text


def _may_block() -> bool:
    """True if standard error is a pipe, a socket or a terminal."""
    try:
        mode = os.fstat(sys.stderr.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        return False
    return not stat.S_ISREG(mode)
