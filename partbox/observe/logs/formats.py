"""The two formats of log lines: text for people, or one JSON object a line for programs.

An application that sets up logging itself may use `JsonLines` in a handler of its own.
"""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson

from partbox.observe.logs.database import current
from partbox.text.printing import printable, printable_json
from partbox.text.secrets import masked, masked_fields

HEAD = "%(asctime)s %(levelname)s %(name)s[%(process)d]"
MARGIN = "\n    "
LONGEST = 4_096  # bytes of a JSON line: a pipe does not mix those of several processes
LEAST = 200  # characters kept of what is cut
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextLines(logging.Formatter):
    """`2026-01-31 09:00:00,123 ERROR partbox.worker[4711]: …`; the trace of an error follows, indented.

    Only a record begins at the margin, whatever is in its text: what a publisher sent may be in an error's.
    If a node works for several databases, the name follows the process: `partbox.worker[4711] orders:`.
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
            return indented(super().format(record))
        finally:
            record.exc_text = kept

    def formatException(self, ei: Any) -> str:
        return masked(super().formatException(ei))


class JsonLines(logging.Formatter):
    """An object with `time`, `level`, `logger`, `pid`, `event`, `message`, the record's own fields, and `trace`.

    Also `database`, if a node works for several.
    """

    def format(self, record: logging.LogRecord) -> str:
        own = masked_fields({name: value for name, value in vars(record).items() if name not in _STANDARD})
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "event": own.pop("event", None),
            "message": masked(record.getMessage()),
            **({"database": current()} if current() else {}),
            **own,
        }
        if record.exc_info:
            line["trace"] = printable(masked(self.formatException(record.exc_info)))
        return _fit_line(line)


def indented(text: str) -> str:
    """The printable text, with every line but the first indented."""
    return printable(text).replace("\n", MARGIN)


def _fit_line(line: dict[str, Any]) -> str:
    """The line as JSON; if too long, the middle of its longest texts is cut: a trace begins with the call and ends with
    the error."""
    text = _json(line)
    while len(text.encode()) > LONGEST:
        name, longest = max(
            ((n, each) for n, each in line.items() if isinstance(each, str)), key=lambda pair: len(pair[1])
        )
        if len(longest) <= LEAST:
            return text
        keep = max(LEAST // 2, min(len(longest) * 2 // 5, LONGEST // 2))
        line[name] = f"{longest[:keep]}…{longest[-keep + 1 :]}"
        text = _json(line)
    return text


def _json(line: dict[str, Any]) -> str:
    try:
        text = orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a lone surrogate, a number beyond 64 bits, an object without a text, in an application's field
        text = orjson.dumps({name: ascii(value) for name, value in line.items()})
    return printable_json(text.decode())
