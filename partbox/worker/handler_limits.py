"""The limits of a worker's handlers, as declared and as overridden while the worker runs, and the pauses."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from partbox.events import DeliveredEvent
from partbox.events.record import ROUTE
from partbox.handlers import Routes
from partbox.observe.logs.log_event import log_event
from partbox.protocol.circuit import OpenCircuit
from partbox.protocol.limit_addresses import EventKeys, LimitAddress, LimitKind
from partbox.protocol.limit_values import KINDS, LimitValue, UnfitValueError, to_limit_value
from partbox.protocol.limits import By, Limit, Rate
from partbox.text.printing import format_error_name
from partbox.worker.engine.limit_permits import LimitPermits
from partbox.worker.engine.limited_queue import LimitWait
from partbox.worker.engine.partition import Lane
from partbox.worker.runners.endpoint import Endpoint, RunKind
from partbox.worker.runners.settlement import Settlement

log = logging.getLogger("partbox.worker")

# Any other name in `by` is a header.
EVENT_FIELDS = ("tenant_id", "aggregate_id", "event_type", "aggregate_type")
PAUSED = Limit(Rate(0.0))

EventValue = Callable[[DeliveredEvent], object]


class HandlerLimits:
    """The rate and concurrency limits of a worker's handlers, as declared in the code and as changed by operators, and
    what operators have paused.

    `declared_limits` (in the code) and `effective_limits` (in force now) map handler names to limits. `paused` has the
    addresses that are paused and hold events here. Transactional handlers never have a limit."""

    def __init__(self, routes: Routes[Endpoint], turns: LimitPermits) -> None:
        self._routes = routes
        self._permits = turns
        limitable = [each for each in routes.list_registered() if _is_limitable(each)]
        self.declared_limits = {each.handler.name: each.handler.limit for each in limitable}
        self._limit_getters = {name: _build_value_getter(limit.by) for name, limit in self.declared_limits.items()}
        self._circuit_getters = {
            each.handler.name: _build_value_getter(each.handler.circuit_by)
            for each in limitable
            if each.handler.circuit_by is not None
        }
        self.effective_limits: dict[str, Limit] = {}
        self.paused: list[LimitAddress] = []
        # The number of events of a lane whose values are computed together: as many as a list handler takes.
        self._lookahead = 1
        self._unfit_logged: set[tuple[str, str]] = set()

    def override_limits(self, others: Mapping[LimitAddress, Limit]) -> None:
        """Replace the limits of operators by the limits in `others`. Any thread may call this."""
        # A handler missing there gets its declared limit; `Limit()` lifts a declared limit; a limit without `by` keeps
        # the declared `by`. Everything but a handler is paused there.
        given = {
            name: replace(declared, **_select_overrides(others.get(LimitAddress.of_handler(name), declared)))
            for name, declared in self.declared_limits.items()
        }
        self.effective_limits = {name: limit for name, limit in given.items() if limit.is_limited}
        self.paused = [each for each in others if self._may_hold(each)]
        # A handler without bounds gives each event a permit at once, unless something closed holds the event.
        all_wait = any(each.kind is not LimitKind.VALUE for each in self.paused)
        waiting = {each.handler for each in self.paused} | self.effective_limits.keys() | self._circuit_getters.keys()
        endpoints = [each for each in self._routes.list_all() if _is_limitable(each)]
        limited = [each for each in endpoints if all_wait or each.handler.name in waiting]
        self._lookahead = max((each.handler.per_key or each.handler.max_size or 1 for each in limited), default=1)
        for endpoint in endpoints:
            endpoint.set_run_kind(RunKind.LIMITED if endpoint in limited else endpoint.kind)
        limits: dict[str | LimitAddress, Limit] = {
            each.handler.name: given.get(each.handler.name, Limit()) for each in limited
        }
        self._permits.set_limits(limits | dict.fromkeys(self.paused, PAUSED), time.monotonic())

    def list_waits(self) -> Sequence[LimitWait]:
        """Return how many events wait because of a handler's limit, and since when."""
        # The waits are listed by handler and limit value, or by the closed object, each with the time at which its
        # first event began to wait.
        return self._permits.list_waits()

    def list_open_circuits(self) -> Iterator[tuple[LimitAddress, OpenCircuit]]:
        """Return the open circuits of values of handlers."""
        for endpoint in self._routes.list_registered():
            for each in endpoint.circuit.list_open():
                yield LimitAddress(LimitKind.CIRCUIT, endpoint.handler.name, each.value), each

    def set_limit_keys(self, lane: Lane) -> None:
        """Assign to the next events of a queue the value, such as their tenant, by which the handler's limit counts
        them."""
        # The value is a field or header of the event, or is returned by the application.
        # The application's `by` is called once for each event. The lane's runner calls this without the engine's lock.
        for event in self._permits.list_without_key(lane, self._lookahead):
            if (limit_keys := self._build_keys(event)) is not None:
                event.limit_keys = limit_keys

    def _may_hold(self, address: LimitAddress) -> bool:
        # True if something is paused at this address, and some handler here waits for it.
        match address.kind:
            case LimitKind.HANDLER:
                return False
            case LimitKind.VALUE:
                limit = self.declared_limits.get(address.handler)
                return limit is not None and (limit.by is not None or address.handler in self._circuit_getters)
            case LimitKind.TYPE:
                found = self._routes.find_by_type(str(address.value))
                return found is None or _is_limitable(found)
            case _:
                return any(_is_limitable(each) for each in self._routes.list_all())

    def _build_keys(self, event: DeliveredEvent) -> EventKeys | None:
        endpoint = self._routes[event.record[ROUTE]]
        if endpoint.run_kind is not RunKind.LIMITED:
            return None
        name = endpoint.handler.name
        limit, circuit = self._limit_getters.get(name), self._circuit_getters.get(name)
        limit_value = None if limit is None else self._find_value("limit_by", name, limit, event)
        circuit_value = None if circuit is None else self._find_value("circuit_by", name, circuit, event)
        return EventKeys(name, limit_value, event.event_type, event.tenant_id, circuit is not None, circuit_value)

    def _find_value(self, option: str, name: str, value: EventValue, event: DeliveredEvent) -> LimitValue:
        try:
            return to_limit_value(value(event))
        except UnfitValueError as error:
            if (option, name) not in self._unfit_logged:
                self._unfit_logged.add((option, name))
                text = f"%s of %s must return {KINDS}; anything else counts as None, and is logged once: %s"
                log_event(log, "limit_by_failed", text, option, name, error, about=event, handler=name)
        # A SystemExit of `by` is caught too, as it must not end the process.
        except BaseException as error:
            Settlement.raise_interrupt(error)
            text = "%s of %s failed, so the event counts as of the value None: %s: %s"
            details = format_error_name(error), error
            log_event(log, "limit_by_failed", text, option, name, *details, about=event, trace=error, handler=name)
        return None


def _is_limitable(endpoint: Endpoint) -> bool:
    return endpoint.kind is not RunKind.TRANSACTIONAL


def _select_overrides(limit: Limit) -> dict[str, Any]:
    return {"rate": limit.rate, "at_once": limit.at_once} | ({} if limit.by is None else {"by": limit.by})


def _build_value_getter(by: By | None) -> EventValue | None:
    if by is None or callable(by):
        return by
    return attrgetter(by) if by in EVENT_FIELDS else lambda event: event.headers.get(by)
