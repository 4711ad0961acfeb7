"""How partbox logs: every line has a name, whose level and fields are in one table (`log_events`).

What an event or an error says is cut, escaped and rid of passwords before it gets into a line.
"""

import logging
import time
from contextlib import suppress
from typing import Any

from partbox.events import DeliveredEvent
from partbox.observe.log_events import LOG_EVENTS, PREFIX, LogEvent
from partbox.rules.flood import Flood
from partbox.rules.printing import printable_line
from partbox.rules.secrets import masked

LONGEST = 1_000  # characters of one thing in a line

flood = Flood()


def tell(
    log: logging.Logger,
    name: str,
    text: str,
    *arguments: object,
    about: DeliveredEvent | None = None,
    trace: BaseException | None = None,
    **fields: object,
) -> None:
    """Log `text % arguments` as the log event `name`, with `fields`, those of the event it is `about`, and the trace of
    an error.

    Of lines that may come in floods the tenth within ten seconds is the last at its level; the others are for DEBUG,
    and the next line counts them.
    """
    event = LOG_EVENTS[name]
    level, more = event.level, ""
    if not event.every:
        level, more = _admitted(event, (log.name, name, text, fields.get("handler"), fields.get("subscription")))
    if log.isEnabledFor(level):
        named = {"event": PREFIX + name, **(_of(about) if about is not None else {}), **fields}
        said = [_shown(each) for each in arguments]
        try:
            log.log(level, text + more, *said, extra=named, exc_info=trace, stacklevel=2)
        except Exception:  # a record factory that has one of these names, a filter that fails: no worker ends of it
            with suppress(Exception):
                log.log(level, text + more, *said, exc_info=trace, stacklevel=2)


def _admitted(event: LogEvent, kind: tuple[object, ...]) -> tuple[int, str]:
    held = flood.admit(kind, time.monotonic())
    if held is None:
        return logging.DEBUG, ""
    return event.level, f" (and {held} times more since this was last said)" if held else ""


def _of(event: DeliveredEvent) -> dict[str, object]:
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


def _shown(value: object) -> Any:
    if isinstance(value, int | float):
        return value
    text = _text(value)
    return printable_line(masked(text), LONGEST)


def _text(value: object) -> str:
    """An error in one line, an event as it shows itself, a text as it is: at most some more than fits."""
    try:
        text = repr(value) if isinstance(value, DeliveredEvent) else str(value)
    except Exception as wrong:
        return f"({type(value).__name__}, whose text cannot be had: {type(wrong).__name__})"
    return " ".join(text[: 2 * LONGEST].split()) if isinstance(value, BaseException) else text[: 2 * LONGEST]
