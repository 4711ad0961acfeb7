"""How log lines look where partbox itself sets up logging: in `partbox worker` and in worker processes.

Text for people, or one JSON object a line for programs. An application that sets up logging itself is left alone, and
may use `JsonLines` in a handler of its own.
"""

import logging
import os
import stat
import sys
from datetime import UTC, datetime
from traceback import format_exc
from typing import Any, Literal

import orjson

from partbox.observe.database import current
from partbox.observe.outlet import Outlet
from partbox.rules.printing import printable, printable_json
from partbox.rules.secrets import masked
from partbox.rules.wording import counted
from partbox.settings import Settings

Format = Literal["text", "json"]

HEAD = "%(asctime)s %(levelname)s %(name)s[%(process)d]"
LONGEST = 4_096  # bytes of a JSON line: what a pipe takes from several processes without mixing them
LEAST = 200  # characters kept of what is cut
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextLines(logging.Formatter):
    """`2026-01-31 09:00:00,123 ERROR partbox.worker[4711]: …`; the trace of an error follows.

    Where a node works for several databases, the name of one comes behind the process: `partbox.worker[4711] orders:`.
    """

    def __init__(self) -> None:
        super().__init__(f"{HEAD}: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        if not (name := current()):
            return super().formatMessage(record)
        return f"{HEAD % vars(record)} {name}: {record.message}"

    def format(self, record: logging.LogRecord) -> str:
        # A trace that another handler's formatter has left in the record is not masked.
        kept, record.exc_text = record.exc_text, None
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatException(self, ei: Any) -> str:
        return _safe(super().formatException(ei))


class JsonLines(logging.Formatter):
    """An object with `time`, `level`, `logger`, `pid`, `event`, `message`, the record's own fields, and `trace`.

    Also `database`, where a node works for several.
    """

    def format(self, record: logging.LogRecord) -> str:
        own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "event": own.pop("event", None),
            "message": masked(record.getMessage()),
            **({"database": current()} if current() else {}),
            **own,
        }
        if record.exc_info:
            line["trace"] = _safe(self.formatException(record.exc_info))
        return _within(line)


class Unread(logging.Handler):
    """To the standard error output, where nobody may read: then lines are lost, and delivery goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._outlet = Outlet(sys.stderr.fileno(), self._lost)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # not `handleError`, which would wait for the reader
            line = _safe(format_exc()).encode(errors="backslashreplace")
        self._outlet.write(line)

    def flush(self) -> None:
        self._outlet.flush()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _lost(self, count: int) -> bytes:
        text = "%s before this one lost: nobody read the standard error output"
        more = {"event": "partbox.log_lines_lost", "lines": count}
        log = logging.getLogger("partbox.log")
        return self._line(
            log.makeRecord(log.name, logging.WARNING, "", 0, text, (counted(count, "log line"),), None, extra=more)
        )


def configure(format: Format, level: int | None = None) -> None:
    """Log to the standard error output in this format, from this level on; None: from INFO, or as it is.

    A second call changes both. The application's own setup, if it has one, stays as it is.
    """
    root = logging.getLogger()
    ours = next((each for each in root.handlers if isinstance(each.formatter, TextLines | JsonLines)), None)
    if ours is None:
        if root.handlers:
            return
        ours = Unread() if _may_block() else logging.StreamHandler()
        root.addHandler(ours)
        level = logging.INFO if level is None else level
    if level is not None:
        root.setLevel(level)
    ours.setFormatter(JsonLines() if format == "json" else TextLines())


def level_said(settings: Settings) -> int | None:
    """The level that somebody has set; None where it is the default, which overrides no setup of an application."""
    said = settings.origins["log_level"] != "default"
    return logging.getLevelNamesMapping()[settings.log_level.upper()] if said else None


def level_of(settings: Settings) -> int:
    """The level of worker processes: as it was set, else that of this process."""
    said = level_said(settings)
    return logging.getLogger().getEffectiveLevel() if said is None else said


def _may_block() -> bool:
    """Is the standard error output a pipe, a socket or a terminal?"""
    try:
        mode = os.fstat(sys.stderr.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        return False
    return not stat.S_ISREG(mode)


def _safe(trace: str) -> str:
    return printable(masked(trace))


def _within(line: dict[str, Any]) -> str:
    """The line as JSON; what is too long loses the middle of its longest texts."""
    text = _json(line)
    while len(text.encode()) > LONGEST:
        name = max((name for name in line if isinstance(line[name], str)), key=lambda name: len(line[name]))
        if len(line[name]) <= LEAST:
            return text
        line[name] = _shorter(line[name])
        text = _json(line)
    return text


def _shorter(text: str) -> str:
    """Less of its middle, which says least: a trace begins with what was done and ends with what went wrong."""
    keep = max(LEAST // 2, min(len(text) * 2 // 5, LONGEST // 2))
    return f"{text[:keep]}…{text[-keep + 1 :]}"


def _json(line: dict[str, Any]) -> str:
    try:
        text = orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a lone surrogate, a number beyond 64 bits, a thing without a text: in an application's field
        text = orjson.dumps({name: ascii(value) for name, value in line.items()})
    return printable_json(text.decode())
