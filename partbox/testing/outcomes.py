"""The outcomes of a drain, and the observer that records them."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, get_args

from partbox.classes import Instance
from partbox.events import DeliveredEvent
from partbox.events.declaration import type_name_of
from partbox.observe import Observer
from partbox.protocol.verdict import Verdict

State = Literal["done", "ignored", "retrying", "deferred", "held", "dead"]
"""The outcome of an event.

done: the handler succeeded. ignored: it failed, and its `on_error` ignores the error. retrying: it will be retried.
deferred: put off by the handler or by an open circuit. held: behind another event of its aggregate. dead: given up.
"""

# Characters of a reason in a line.
LONGEST = 200
# Errors of the handler itself. Any other (Ctrl-C, pytest.fail, pytest's timeout) also ends the drain.
HANDLER_ERRORS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The outcome of one event that was delivered in a test.

    `handler` is its name, or None if the event was held (not handed over). `attempts` is the number counted so far,
    `due` the seconds until the next attempt, or None if none comes by itself. `error` is the exception, `reason` its
    stored text or the handler's reason."""

    event: DeliveredEvent
    handler: str | None
    state: State
    attempts: int = 0
    due: float | None = None
    error: BaseException | None = None
    reason: str | None = None

    def __str__(self) -> str:
        event = self.event
        what = f"{event.event_type} of {event.aggregate_type}/{event.aggregate_id} (id {event.id})"
        parts: list[str] = [self.state]
        if self.due is not None:
            parts.append(f"due in {self.due:g} s")
        if self.attempts:
            parts.append(f"{self.attempts} attempt{'s' if self.attempts > 1 else ''}")
        by = f" by {self.handler}" if self.handler else ""
        why = f": {self.reason[:LONGEST]}" if self.reason else ""
        return f"{what}{by}: {', '.join(parts)}{why}"

    __repr__ = __str__


class Drained(list[Settled]):
    """The outcomes of all events that were delivered in a test, in the order of delivery.

    Held events, which wait behind another event of their key, come last."""

    @property
    def states(self) -> list[State]:
        """The states of the events, such as "done" or "dead", in the order of delivery."""
        return [each.state for each in self]

    def of(self, event_type: str | Enum | type[Instance], aggregate_id: object = None) -> "Drained":
        """Select the outcomes of events of a type, named by a string or class, and of an aggregate id if given."""
        named = type_name_of("event_type", event_type)
        wanted = None if aggregate_id is None else str(aggregate_id)
        return Drained(
            each for each in self if each.event.event_type == named and wanted in (None, each.event.aggregate_id)
        )

    def assert_done(self) -> "Drained":
        """Return the outcomes if there are events and all are done, else raise AssertionError.

        The error lists the outcomes, and its cause is the exception of the first failed handler."""
        if self and all(each.state == "done" for each in self):
            return self
        if not self:
            raise AssertionError(
                "nothing was due: are the published events committed, and has their due time come (`advance`)?"
            )
        raise AssertionError(f"not all is done:\n{self}") from next((each.error for each in self if each.error), None)

    def __str__(self) -> str:
        return "\n".join(f"  {each}" for each in self) or "  nothing was due"

    def __repr__(self) -> str:
        return f"<drained:\n{self}\n>"


class OutcomeRecorder(Observer):
    """An observer for tests that records the outcome of each delivered event, in order.

    `ran` has the ids of the events of the drain."""

    def __init__(self) -> None:
        self.outcomes: list[Settled] = []
        self.ran: set[int] = set()
        self.fatal: BaseException | None = None
        self._raised_errors: dict[int, BaseException] = {}

    @contextmanager
    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._raised_errors.update((event.id, error) for event in events)
            if not isinstance(error, HANDLER_ERRORS):
                self.fatal = self.fatal or error
            raise

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        error = self._raised_errors.pop(event.id, None)
        if verdict is None:
            state, reason = ("done", None) if error is None else ("ignored", repr(error))
            outcome = Settled(event, handler, state, error=error, reason=reason)  # type: ignore[arg-type]
        else:
            named: Any = verdict.state if verdict.state in get_args(State) else "held"
            outcome = Settled(event, handler, named, verdict.attempts, verdict.delay, error, verdict.error)
        self.outcomes.append(outcome)
        self.ran.add(event.id)

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        places = (place for place, each in enumerate(self.outcomes) if each.event is event)
        if error is not None and (place := max(places, default=None)) is not None:
            self.outcomes[place] = replace(self.outcomes[place], error=error)
