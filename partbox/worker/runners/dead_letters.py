"""Gives dead events to the dead-letter hook, at least once.

A dead row that is owed to the hook has a due time; only when the hook has returned is it taken away. So the hook is
called again after a crash, and after an error of its own. The row stays, whatever the hook does.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from partbox.callables import is_async, takes
from partbox.events import DeliveredEvent
from partbox.observe.logs.log_event import log_event
from partbox.worker.engine.dead_letter_lane import DeadLetterLane
from partbox.worker.engine.engine import Engine
from partbox.worker.fork_safety import leave

log = logging.getLogger("partbox.worker")

Hook = Callable[..., Any]

RETRY = 10.0  # seconds until a hook that failed is called again


def walk(lane: DeadLetterLane, engine: Engine, hook: Hook | None) -> None:
    """Give the dead event of this lane to the hook; without one nothing is owed any more. Any runner thread."""
    if lane.partition.stopping or not lane.queue:  # it stays due, for the next owner or the next reading
        return
    event = lane.queue.popleft()
    if event.epoch != lane.partition.epoch:  # read anew since: its row is found again, and may be another event's (A9)
        return
    failed: BaseException | None = None
    try:
        if hook is not None:
            call(hook, event, lane.error)
    except BaseException as error:  # also SystemExit: a hook does not end the process
        failed = error
    if engine.forked:
        leave(failed)
    if failed is not None:
        text = "the dead-letter hook failed for %s and is called again in %g s: %s"
        log_event(log, "dead_letter_failed", text, event, RETRY, failed, about=event, trace=failed, delay=RETRY)
    engine.outcomes.hooked(lane, event, None if failed is None else RETRY)


def both(hook: Hook | None, sink: Hook) -> Hook:
    """A hook that is both: first the sink, for the application's own may fail for ever."""

    def tell(event: DeliveredEvent, error: str) -> None:
        sink(event, error)
        if hook is not None:
            call(hook, event, error)

    return tell


def call(hook: Hook, event: DeliveredEvent, error: str | None) -> None:
    """Call a hook that takes the event, or the event and its error; an async one to its end."""
    outcome = hook(event, error) if takes(hook, 2) else hook(event)
    if is_async(hook):
        asyncio.run(outcome)
