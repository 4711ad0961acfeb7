"""The function that writes every log line of partbox. Each line has a name, whose level and fields are in the table
`LOG_EVENTS`. Texts of events and errors are shortened, escaped and masked first."""

import logging
import threading
from types import TracebackType
from typing import Any, Final, cast

from psycopg.errors import DiskFull

from partbox.events import DeliveredEvent
from partbox.log_rate_limit import LogRateLimiter
from partbox.observe.logs.database import get_log_database
from partbox.observe.logs.table import LOG_EVENTS, PREFIX
from partbox.text.printing import shorten_line, text_of
from partbox.text.secrets import mask_secrets

# Characters of one argument in a line.
LONGEST = 1_000
FULL_DISK: Final = "a disk of the PostgreSQL server is full: make room there, and partbox goes on by itself: "

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
_TRACEBACK: Final = BaseException.__dict__["__traceback__"].__get__

log_rate_limiter = LogRateLimiter()


def log_event(
    log: logging.Logger,
    name: str,
    text: str,
    *arguments: object,
    about: DeliveredEvent | None = None,
    trace: BaseException | ExcInfo | None = None,
    **fields: object,
) -> None:
    """Write one log line for a named event, with the level and rate limit defined for that event.

    `fields` become fields of the log record, `about` adds those of a delivered event, and `trace` adds a traceback. On
    a node with several databases, the field `database` names the current one. At most ten lines of a rate-limited kind
    within ten seconds keep their level. Further lines are logged at DEBUG, and the next line counts them."""
    # The message is `text % arguments`. The level and the rate limit come from the table of log events.
    event = LOG_EVENTS[name]
    # `logging.config.dictConfig` of an application disables all loggers that it does not know.
    log.disabled = False
    level, more = event.level, ""
    if not event.is_unlimited:
        kind = (log.name, name, text, fields.get("handler"), fields.get("subscription"), get_log_database())
        level, more = log_rate_limiter.line(kind, level)
    if log.isEnabledFor(level):
        where = {"database": get_log_database()} if get_log_database() else {}
        named = {"event": PREFIX + name, **where, **(_build_event_fields(about) if about is not None else {}), **fields}
        message, shown_arguments = text + more, [_to_printable(each) for each in arguments]
        # Each attempt passes less to logging: a record factory may use one of the field names, a filter may fail, and
        # an error may raise while it is formatted. None of this may end a worker.
        for options in ({"extra": named, "exc_info": _to_exc_info(trace)}, {"exc_info": _to_exc_info(trace)}, {}):
            try:
                return log.log(level, message, *shown_arguments, stacklevel=2, **options)
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
    return None


def is_ctrl_c(error: BaseException) -> bool:
    """Return True if the exception is a KeyboardInterrupt caused by Ctrl-C."""
    # Only the main thread gets it.
    return issubclass(type(error), KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _to_exc_info(error: BaseException | ExcInfo | None) -> ExcInfo | None:
    # No method of the error is called, because its class may come from an application and misbehave.
    # `isinstance` would ask the error for its class.
    if error is None or type(error) is tuple:
        return error
    failed = cast("BaseException", error)
    # The descriptor of BaseException is called, because an exception class may override `__traceback__`.
    return type(failed), failed, _TRACEBACK(failed)


def _build_event_fields(event: DeliveredEvent) -> dict[str, object]:
    return {
        "subscription": event.subscription,
        "partition": event.partition,
        "record_id": event.id,
        "event_id": str(event.event_id),
        "event_type": event.event_type,
        "aggregate_type": event.aggregate_type,
        "attempt": event.attempt,
        "epoch": event.epoch,
    }


def _to_printable(value: object) -> Any:
    if issubclass(type(value), int | float):
        return value
    # A little more than fits, because masking may shorten the text.
    text = text_of(value)[: 2 * LONGEST]
    if isinstance(value, BaseException):
        text = " ".join(text.split())
    # PostgreSQL's own hint is not always there, and stands at the end, where it may be cut off.
    remedy = FULL_DISK if issubclass(type(value), DiskFull) else ""
    return shorten_line(mask_secrets(remedy + text), LONGEST)
