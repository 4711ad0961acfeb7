"""Hands events to their handlers without the log, as a worker does, but without parking.

For events that no worker can see: those of a transaction that is rolled back at the end of a test, or built by hand.
"""

import time
from collections.abc import Sequence
from typing import Any

from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.observe import Observers
from partbox.outbox import Outbox
from partbox.testing.outcomes import Drained, OutcomeNotes
from partbox.testing.stepping import Await
from partbox.worker.delivering.endpoint import Endpoint, Kind
from partbox.worker.delivering.event_loop import EventLoop
from partbox.worker.delivering.reports import Reports


def hand(outbox: Outbox, events: Sequence[DeliveredEvent], conn: Any, await_it: Await) -> Drained:
    """Hand these over, one after the other; `conn` is for transactional handlers."""
    notes = OutcomeNotes()
    observers = Observers([*outbox.handlers.observers, notes])
    limit, interceptors = outbox.settings.error_limit, outbox.handlers.interceptors
    routes = {
        name: outbox.handlers.routes(name, outbox.settings).map(
            lambda handler: Endpoint(handler, interceptors, limit, observers)
        )
        for name in {event.subscription for event in events}
    }
    for event in events:
        mine = routes[event.subscription]
        endpoint, started = mine[event.event_type, event.aggregate_type], time.monotonic()
        result = _result(endpoint, event, conn, await_it)
        Reports(observers, mine).settled(event, endpoint.judge(event, result, started), result)
        if notes.fatal is not None:
            raise notes.fatal
    return Drained(notes.outcomes)


def _result(endpoint: Endpoint, event: DeliveredEvent, conn: Any, await_it: Await) -> object:
    handler = endpoint.handler
    if endpoint.kind is Kind.TRANSACTIONAL and conn is None:
        raise PartboxError(f"{handler.name} is transactional: pass the connection that it is to use, conn=…")
    given: Any = [event] if handler.max_size is not None else event
    result: object = None

    async def call() -> None:
        nonlocal result
        result = await EventLoop.call(endpoint.call, given, handler.timeout)

    if handler.is_async:
        await_it(call())
    else:
        try:
            result = endpoint.call(given, conn) if endpoint.kind is Kind.TRANSACTIONAL else endpoint.call(given)
        except BaseException as error:  # also SystemExit: it is the handler's error
            result = error
    return result[0] if handler.max_size is not None and isinstance(result, list) and len(result) == 1 else result
