"""The limits of a worker's handlers, as declared and as overridden while the worker runs."""

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
from partbox.protocol.limit_values import KINDS, UnfitValueError, to_limit_value
from partbox.protocol.limits import By, Limit
from partbox.protocol.turns import LimitKey
from partbox.text.printing import format_error_name
from partbox.worker.engine.limit_permits import LimitPermits
from partbox.worker.engine.limited_queue import LimitWait
from partbox.worker.engine.partition import Lane
from partbox.worker.runners.endpoint import Endpoint, RunKind
from partbox.worker.runners.settlement import Settlement

log = logging.getLogger("partbox.worker")

# Any other name in `by` is a header.
EVENT_FIELDS = ("tenant_id", "event_type", "aggregate_type")

EventValue = Callable[[DeliveredEvent], object]


class HandlerLimits:
    """The rate and concurrency limits of a worker's handlers, as declared in the code and as changed by operators.

    `declared_limits` (in the code) and `effective_limits` (in force now) map handler names to limits. Transactional
    handlers never have a limit."""

    def __init__(self, routes: Routes[Endpoint], turns: LimitPermits) -> None:
        self._routes = routes
        self._permits = turns
        self._value_getters: dict[str, EventValue] = {}
        self.declared_limits = {each.handler.name: each.handler.limit for each in self._list_limitable()}
        self.effective_limits: dict[str, Limit] = {}
        # The number of events of a lane whose values are computed together: as many as a list handler takes.
        self._lookahead = 1
        self._unfit_logged: set[str] = set()

    def override_limits(self, others: Mapping[str, Limit]) -> None:
        """Replace the handler limits in force by the limits in `others`. Any thread may call this."""
        # A handler missing there gets its declared limit; `Limit()` lifts a declared limit; a limit without `by` keeps
        # the declared `by`.
        given = {
            name: replace(declared, **_select_overrides(others.get(name, declared)))
            for name, declared in self.declared_limits.items()
        }
        self.effective_limits = {name: limit for name, limit in given.items() if limit.is_limited}
        self._value_getters = {name: _build_value_getter(limit.by) for name, limit in self.effective_limits.items()}
        lists = [each.handler for each in self._list_limitable() if each.handler.name in self.effective_limits]
        self._lookahead = max((each.per_key or each.max_size or 1 for each in lists), default=1)
        for endpoint in self._list_limitable():
            endpoint.set_run_kind(RunKind.LIMITED if endpoint.handler.name in self.effective_limits else endpoint.kind)
        self._permits.set_limits(self.effective_limits, time.monotonic())

    def list_waits(self) -> Sequence[LimitWait]:
        """Return how many events wait because of a handler's limit, and since when."""
        # The waits are listed by handler and limit value, each with the time at which its first event began to wait.
        return self._permits.list_waits()

    def set_limit_keys(self, lane: Lane) -> None:
        """Assign to the next events of a queue the value, such as their tenant, by which the handler's limit counts
        them."""
        # The value is a field or header of the event, or is returned by the application.
        # The application's `by` is called once for each event. The lane's runner calls this without the engine's lock.
        for event in self._permits.list_without_key(lane, self._lookahead):
            if (limit_key := self._find_limit_key(event)) is not None:
                event.limit_key = limit_key

    def _list_limitable(self) -> list[Endpoint]:
        return [each for each in self._routes.list_registered() if each.kind is not RunKind.TRANSACTIONAL]

    def _find_limit_key(self, event: DeliveredEvent) -> LimitKey | None:
        endpoint = self._routes[event.record[ROUTE]]
        name = endpoint.handler.name
        value = self._value_getters.get(name)
        if value is None or endpoint.run_kind is not RunKind.LIMITED:
            return None
        try:
            return name, to_limit_value(value(event))
        except UnfitValueError as error:
            if name not in self._unfit_logged:
                self._unfit_logged.add(name)
                text = f"limit_by of %s must return {KINDS}; anything else counts as None, and is logged once: %s"
                log_event(log, "limit_by_failed", text, name, error, about=event, handler=name)
        # A SystemExit of `by` is caught too, as it must not end the process.
        except BaseException as error:
            Settlement.raise_interrupt(error)
            text = "limit_by of %s failed, so the event is limited as for the value None: %s: %s"
            log_event(
                log,
                "limit_by_failed",
                text,
                name,
                format_error_name(error),
                error,
                about=event,
                trace=error,
                handler=name,
            )
        return name, None


def _select_overrides(limit: Limit) -> dict[str, Any]:
    return {"rate": limit.rate, "at_once": limit.at_once} | ({} if limit.by is None else {"by": limit.by})


def _build_value_getter(by: By | None) -> EventValue:
    if by is None:
        return lambda event: None
    if callable(by):
        return by
    return attrgetter(by) if by in EVENT_FIELDS else lambda event: event.headers.get(by)
