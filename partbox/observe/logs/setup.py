"""Sets up logging in `partbox worker` and in worker processes; an application's own setup is left alone."""

import logging
import os
import stat
import sys
from traceback import format_exc
from typing import Literal

from partbox.observe.logs.formats import JsonLines, TextLines, indented
from partbox.observe.logs.log_event import log_event
from partbox.observe.logs.outlet import Outlet
from partbox.settings import Settings, strays
from partbox.text.secrets import masked
from partbox.text.wording import counted

log = logging.getLogger("partbox")

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
