"""Outcomes of events without a handler, or too new for their handler, by the setting `on_unroutable`."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from partbox.callables import Call, is_async
from partbox.errors import UnroutableError
from partbox.protocol.rows import IgnoredEvent
from partbox.protocol.verdict import Deferral

if TYPE_CHECKING:
    from partbox.settings import Routing

UNROUTABLE_DELAY = 5.0  # seconds until an event without a handler is tried again

Unroutable = Callable[[Any, str], object]
"""Returns the outcome of an event that no handler takes, by the reason. A returned exception is its error."""


def _give_up(_: Any, reason: str) -> object:
    return UnroutableError(reason)


def _ignore(event: Any, reason: str) -> object:
    """Count an event without a handler as done, without delivery."""
    # If it was parked (set aside in a row of its own), a row about its end is left, which says that it was not
    # delivered. For other events the row in `handled_types` of this process says so.
    if event.parked is not None:
        event.ignored = IgnoredEvent(event.id, 0, reason, None)
    return None


def _retry(_: Any, reason: str) -> object:
    return Deferral(UNROUTABLE_DELAY, reason)


_ROUTINGS: dict[str, Unroutable] = {"dead": _give_up, "ignore": _ignore, "retry": _retry}


def unroutable_of(mode: "Routing") -> Unroutable:
    """Return the function that decides the outcome of an event without a handler."""
    # `mode` is the mode of `on_unroutable`. An async function cannot be awaited here, so its events are tried again.
    if not callable(mode):
        return _ROUTINGS[mode]
    return _retry if is_async(mode) else partial(_call_function, mode)


def _call_function(function: Call, event: Any, _: str) -> object:
    try:
        return function(event)
    except BaseException as error:
        # As with a handler, an error becomes the outcome.
        return error
