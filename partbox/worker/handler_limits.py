"""The limits of a worker's handlers: as they are declared, and as they are given while it runs."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from partbox.events import DeliveredEvent
from partbox.events.record import ROUTE
from partbox.handlers import Routes
from partbox.observe.logs.log_event import log_event
from partbox.protocol.limit_values import KINDS, UnfitValueError, limit_value
from partbox.protocol.limits import By, Limit
from partbox.protocol.turns import Place
from partbox.text.printing import error_name
from partbox.worker.engine.limit_turns import LimitTurns
from partbox.worker.engine.limited_queue import LimitWait
from partbox.worker.engine.partition import Lane
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.settlement import Settlement

log = logging.getLogger("partbox.worker")

FIELDS = ("tenant_id", "event_type", "aggregate_type")

Value = Callable[[DeliveredEvent], object]


class HandlerLimits:
    """Limits by the handlers' names. `declared` has what each declares, `in_force` the limits that hold now.

    Transactional handlers have none, whatever is given.
    """

    def __init__(self, routes: Routes[Endpoint], turns: LimitTurns) -> None:
        self._routes = routes
        self._turns = turns
        self._values: dict[str, Value] = {}
        self.declared = {each.handler.name: each.handler.limit for each in self._limitable()}
        self.in_force: dict[str, Limit] = {}
        self._ahead = 1  # events of a lane whose values are asked for together: a list takes so many
        self._unfit: set[str] = set()  # the handlers of which an unfit value was logged

    def give(self, others: Mapping[str, Limit]) -> None:
        """Have these in force from now on, and of every handler that they do not name the declared one.

        `Limit()` lifts what is declared. One without a `by` keeps the declared one. Any thread.
        """
        given = {
            name: replace(declared, **_numbers(others.get(name, declared))) for name, declared in self.declared.items()
        }
        self.in_force = {name: limit for name, limit in given.items() if limit.bounds}
        self._values = {name: _value_of(limit.by) for name, limit in self.in_force.items()}
        lists = [each.handler for each in self._limitable() if each.handler.name in self.in_force]
        self._ahead = max((each.per_key or each.max_size or 1 for each in lists), default=1)
        for endpoint in self._limitable():
            endpoint.walk_as(Kind.LIMITED if endpoint.handler.name in self.in_force else endpoint.kind)
        self._turns.put_in_force(self.in_force, time.monotonic())

    def waits(self) -> Sequence[LimitWait]:
        """Events that wait for their turn in this process: by handler and value, how many, and since when the first."""
        return self._turns.waits()

    def place(self, lane: Lane) -> None:
        """Note where the first events of a lane wait for their turns. By its runner, without the engine's lock: the
        application is asked for the value, once for each event."""
        for event in self._turns.unplaced(lane, self._ahead):
            if (place := self._place(event)) is not None:
                event.place = place

    def _limitable(self) -> list[Endpoint]:
        return [each for each in self._routes.registered() if each.kind is not Kind.TRANSACTIONAL]

    def _place(self, event: DeliveredEvent) -> Place | None:
        """Return the place at which the event waits; None if its handler has no limit."""
        endpoint = self._routes[event.record[ROUTE]]
        name = endpoint.handler.name
        value = self._values.get(name)
        if value is None or endpoint.walked_as is not Kind.LIMITED:
            return None
        try:
            return name, limit_value(value(event))
        except UnfitValueError as error:
            if name not in self._unfit:
                self._unfit.add(name)
                text = f"limit_by of %s must return {KINDS}; anything else counts as None, and is logged once: %s"
                log_event(log, "limit_by_failed", text, name, error, about=event, handler=name)
        except BaseException as error:  # also SystemExit: it does not end the process
            Settlement.pass_on(error)
            text = "limit_by of %s failed, so the event is limited as one without a value: %s: %s"
            log_event(
                log, "limit_by_failed", text, name, error_name(error), error, about=event, trace=error, handler=name
            )
        return name, None


def _numbers(limit: Limit) -> dict[str, Any]:
    return {"rate": limit.rate, "at_once": limit.at_once} | ({} if limit.by is None else {"by": limit.by})


def _value_of(by: By | None) -> Value:
    if by is None:
        return lambda event: None
    if callable(by):
        return by
    return attrgetter(by) if by in FIELDS else lambda event: event.headers.get(by)
