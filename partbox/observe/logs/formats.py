"""The two formats of log lines: text for people, and one JSON object a line for programs. Both mask secrets and escape
control characters. An application may use `JsonLines` in a log handler of its own."""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson

from partbox.observe.logs.database import get_log_database
from partbox.text.printing import escape_json, escape_unprintable
from partbox.text.secrets import mask_fields, mask_secrets

HEAD = "%(asctime)s %(levelname)s %(name)s[%(process)d]"
MARGIN = "\n    "
# At most this many bytes, because a pipe does not mix lines of that size from several processes.
LONGEST = 4_096
# A shortened text keeps at least half of this many characters.
LEAST = 200
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextLines(logging.Formatter):
    """A log formatter that writes lines such as `2026-01-31 09:00:00,123 ERROR partbox.worker[4711]: …`.

    On a node with several databases, the name of the database follows the process. Tracebacks and line breaks that a
    publisher sent are indented, so that only records begin at the margin."""

    def __init__(self) -> None:
        super().__init__(f"{HEAD}: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        if not (name := get_log_database()):
            return super().formatMessage(record)
        return f"{HEAD % vars(record)} {name}: {record.message}"

    def format(self, record: logging.LogRecord) -> str:
        # A traceback text that another handler's formatter has cached in the record is not masked.
        kept, record.exc_text = record.exc_text, None
        try:
            return indent_lines(super().format(record))
        finally:
            record.exc_text = kept

    def formatException(self, ei: Any) -> str:
        return mask_secrets(super().formatException(ei))


class JsonLines(logging.Formatter):
    """A log formatter that writes each record as a JSON object on one line. A line has `time`, `level`, `logger`,
    `pid`, `event`, `message`, the record's own fields, `trace` for an error, and `database` on a node with several."""

    def format(self, record: logging.LogRecord) -> str:
        own = mask_fields({name: value for name, value in vars(record).items() if name not in _STANDARD})
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "event": own.pop("event", None),
            "message": mask_secrets(record.getMessage()),
            **({"database": get_log_database()} if get_log_database() else {}),
            **own,
        }
        if record.exc_info:
            line["trace"] = escape_unprintable(mask_secrets(self.formatException(record.exc_info)))
        return _fit_line(line)


def indent_lines(text: str) -> str:
    """Return the text with unprintable characters escaped and all lines but the first indented."""
    return escape_unprintable(text).replace("\n", MARGIN)


def _fit_line(line: dict[str, Any]) -> str:
    """Return the fields of a log line as JSON, shortened to at most `LONGEST` bytes."""
    # The longest texts are cut in the middle, because a traceback begins with the call and ends with the error.
    text = _to_json(line)
    while len(text.encode()) > LONGEST:
        name, longest = max(
            ((n, each) for n, each in line.items() if isinstance(each, str)), key=lambda pair: len(pair[1])
        )
        if len(longest) <= LEAST:
            return text
        keep = max(LEAST // 2, min(len(longest) * 2 // 5, LONGEST // 2))
        line[name] = f"{longest[:keep]}…{longest[-keep + 1 :]}"
        text = _to_json(line)
    return text


def _to_json(line: dict[str, Any]) -> str:
    try:
        text = orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS)
    # A field of the application holds a lone surrogate, a number beyond 64 bits, or an object without a text.
    except TypeError:
        text = orjson.dumps({name: ascii(value) for name, value in line.items()})
    return escape_json(text.decode())
