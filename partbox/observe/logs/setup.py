"""Logging setup of `partbox worker` and of worker processes. An application's own setup is left alone."""

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

from partbox.observe.logs.formats import JsonLines, TextLines, indent_lines
from partbox.observe.logs.log_event import log_event
from partbox.settings import Settings, strays
from partbox.text.secrets import mask_secrets
from partbox.text.wording import format_count

log = logging.getLogger("partbox")

WRITE_TIMEOUT = 0.5  # seconds
MAX_WAITING = 256  # lines


class StallTolerantWriter:
    """A writer of lines to a file descriptor that does not block for long if the reader stalls.

    A thread of its own writes the lines. If a line is not out after `WRITE_TIMEOUT` seconds, the reader counts as
    stalled, and nobody waits any more until it reads again. Meanwhile `MAX_WAITING` lines are kept and further lines
    are only counted. `note` returns the line that reports the count once the reader goes on."""

    def __init__(self, fd: int, note: Callable[[int], bytes]) -> None:
        self._fd = fd
        self._format_note = note
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        # The lock is reentrant like that of a logging handler, because a signal handler may log.
        self._changed = threading.Condition(threading.RLock())
        self._waiting_lines: deque[bytes] = deque()
        self._has_started = self._is_stalled = False
        self._accepted_count = self._written_count = self._lost_count = 0

    def write(self, line: bytes) -> None:
        """Write a line within `WRITE_TIMEOUT` seconds, or queue it if the reader is slow. Any thread may call."""
        # The method waits until the line is out, so that the last lines of a dying process are not lost.
        # Once the queue is full, the line is dropped and only counted.
        # After a fork, the writer thread and the queued lines still belong to the parent.
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if len(self._waiting_lines) >= MAX_WAITING:
                self._lost_count += 1
                return
            self._waiting_lines.append(line)
            self._accepted_count += 1
            position = self._accepted_count
            self._changed.notify_all()
            if not self._has_started:
                threading.Thread(target=self._run, name="partbox-log", daemon=True).start()
                self._has_started = True
            if not self._is_stalled:
                # If the line is not out in time, the reader counts as stalled.
                self._is_stalled = not self._changed.wait_for(lambda: self._written_count >= position, WRITE_TIMEOUT)

    def flush(self) -> None:
        """Wait until all queued lines are written, but at most `WRITE_TIMEOUT` seconds."""
        with self._changed:
            if self._pid == os.getpid():
                self._changed.wait_for(
                    lambda: self._written_count == self._accepted_count and not self._lost_count, WRITE_TIMEOUT
                )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting_lines or self._lost_count)
                lost, line = self._lost_count, self._waiting_lines[0] if self._waiting_lines else b""
            self._write_fully(line or self._format_note(lost))
            with self._changed:
                if line:
                    self._waiting_lines.popleft()
                    self._written_count += 1
                else:
                    self._lost_count -= lost
                self._is_stalled = self._is_stalled and bool(self._waiting_lines or self._lost_count)
                self._changed.notify_all()

    def _write_fully(self, line: bytes) -> None:
        # This takes as long as it takes. The line is dropped if the reader has gone.
        with suppress(OSError):
            while line:
                try:
                    line = line[os.write(self._fd, line) :]
                except BlockingIOError:
                    # Another process that shares the descriptor has made it non-blocking.
                    select.select((), (self._fd,), ())


Format = Literal["text", "json"]

# Texts about unknown variables that were logged or shown already.
_warned_strays: set[str] = set()


class StderrHandler(logging.Handler):
    """A log handler for standard error that loses log lines rather than block the program if the reader stalls."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = StallTolerantWriter(sys.stderr.fileno(), self._format_lost_lines)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._format_line(record)
        # `Handler.handleError` would write to standard error directly and wait for the reader.
        except Exception:
            line = mask_secrets(indent_lines(format_exc())).encode(errors="backslashreplace")
        self._writer.write(line)

    def flush(self) -> None:
        self._writer.flush()

    def _format_line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _format_lost_lines(self, count: int) -> bytes:
        text = "lost %s before this line: nobody read the standard error output"
        more = {"event": "partbox.log_lines_lost", "lines": count}
        log = logging.getLogger("partbox.log")
        return self._format_line(
            log.makeRecord(log.name, logging.WARNING, "", 0, text, (format_count(count, "log line"),), None, extra=more)
        )


def configure_logging(format: Format, level: int | None = None) -> None:
    """Set up partbox's logging to standard error, unless the application has set up logging by itself."""
    # `level` is the lowest level. None means INFO at the first call and the present level afterwards. A second call
    # changes format and level.
    root = logging.getLogger()
    own_handler = next((each for each in root.handlers if isinstance(each.formatter, TextLines | JsonLines)), None)
    if own_handler is None:
        if root.handlers:
            return
        own_handler = StderrHandler() if _may_block() else logging.StreamHandler()
        root.addHandler(own_handler)
        level = logging.INFO if level is None else level
    if level is not None:
        root.setLevel(level)
    own_handler.setFormatter(JsonLines() if format == "json" else TextLines())


def find_configured_level(settings: Settings) -> int | None:
    """Return the log level from partbox's settings, or None for the default level."""
    # The default level must not override the logging of an application.
    said = settings.origins["log_level"] != "default"
    return logging.getLevelNamesMapping()[settings.log_level.upper()] if said else None


def find_worker_level(settings: Settings) -> int:
    """Return the log level for worker processes, from the settings or else the level of this process."""
    said = find_configured_level(settings)
    return logging.getLogger().getEffectiveLevel() if said is None else said


def warn_of_strays() -> None:
    """Log a warning about environment variables that look like partbox settings but are unknown."""
    # The warning comes once for each text in a process. Such variables are no errors: Kubernetes adds
    # PARTBOX_SERVICE_HOST and the like to containers beside a service of that name.
    text = strays()
    if text is not None and text not in _warned_strays:
        _warned_strays.add(text)
        log_event(log, "unknown_variables", "%s", text)


def take_strays_text() -> str | None:
    """Return the warning about unknown environment variables that look like settings, and mark it as logged."""
    # `warn_of_strays` does not repeat it then.
    text = strays()
    _warned_strays.update(() if text is None else (text,))
    return text


def _may_block() -> bool:
    """Return True if writing to standard error may block, as for a pipe, a socket or a terminal."""
    # Return False if it is a file or closed.
    try:
        mode = os.fstat(sys.stderr.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return not stat.S_ISREG(mode)
