"""The lines that were logged, and what has them logged."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.observe.logs.formats import JsonLines

CANARY = "canary-7731"


class Lines:
    """The lines that were logged, by the names of what happened."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "partbox")
        self._caplog = caplog

    def of(self, name: str, level: int = logging.INFO) -> list[Any]:
        found = [record for record in self._caplog.records if getattr(record, "event", None) == f"partbox.{name}"]
        return [record for record in found if record.levelno >= level]

    def one(self, name: str) -> Any:
        (line,) = eventually(lambda: self.of(name))
        return line

    def all(self) -> str:
        """Everything, as JSON."""
        return "\n".join(JsonLines().format(record) for record in self._caplog.records)


def publish(outbox: Outbox, *numbers: int, event_type: str = "Counted", key: str | None = None, **fields: Any) -> None:
    if key is not None:
        fields |= {"aggregate_type": "Key", "aggregate_id": key}
    events = [Event(event_type, {"n": number, "secret": CANARY}, **fields) for number in numbers]
    with psycopg.connect(outbox.dsn) as conn:
        outbox.publish_many(conn, events)


@contextmanager
def root_logger() -> Iterator[logging.Logger]:
    """A root logger without handlers in the place of the test's own."""
    root, get_logger = logging.RootLogger(logging.WARNING), logging.getLogger
    # Loggers that have a name stay as they are: a module that is imported meanwhile may set the level of its own.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logging, "getLogger", lambda name=None: get_logger(name) if name else root)
        yield root
