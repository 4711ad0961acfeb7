"""An application's publish hooks, called once per batch in the order of their registration.

A batch consists of the events of one call. A `before_publish` hook may replace the batch. The other hooks get the
published events, and their errors are logged and change nothing."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from partbox.callables import is_async, name_of, place_of, takes
from partbox.errors import PublishError, RegistrationError
from partbox.events import Event
from partbox.observe.logs.log_event import log_event
from partbox.publish.arguments import build_events

log = logging.getLogger("partbox.publish")


class HookMoment(Enum):
    """The moment at which an application's publish hook is called, such as before the publish or after the commit."""

    BEFORE_PUBLISH = "before_publish"
    AFTER_PUBLISH = "after_publish"
    AFTER_COMMIT = "after_commit"
    AFTER_ROLLBACK = "after_rollback"


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of the application that is called when events are published, and the moment of the call."""

    moment: HookMoment
    call: Callable[[list[Event]], Any]

    def __str__(self) -> str:
        return f"{self.moment.value} hook {name_of(self.call)} ({place_of(self.call)})"


class PublishHooks:
    """The functions of an application that are called when one outbox publishes events.

    The hooks are plain data that can be sent to other processes."""

    def __init__(self) -> None:
        self.by_moment: dict[HookMoment, tuple[Hook, ...]] = dict.fromkeys(HookMoment, ())
        self._async_hook: Hook | None = None
        self.has_any = False

    def register(self, moment: HookMoment, call: Callable[[list[Event]], Any]) -> None:
        """Add a hook after the others of its moment. Raise RegistrationError if it cannot take the list of events."""
        hook = Hook(moment, call)
        if not callable(call):
            raise RegistrationError(
                f"{call!r} is no {moment.value} hook: give a function that takes the list of events"
            )
        if not takes(call, 1):
            raise RegistrationError(f"{hook} must take exactly one positional argument, the list of events")
        self.by_moment[moment] += (hook,)
        self.has_any = True
        if is_async(call):
            self._async_hook = self._async_hook or hook

    @property
    def needs_end(self) -> bool:
        """True if some hook is called after the commit or rollback."""
        # The end of the transaction must then be reported.
        return bool(self.by_moment[HookMoment.AFTER_COMMIT] or self.by_moment[HookMoment.AFTER_ROLLBACK])

    def check_sync(self) -> None:
        """Raise PublishError if some hook is asynchronous, which a synchronous publish cannot await."""
        if self._async_hook is not None:
            raise PublishError(
                f"{self._async_hook} is asynchronous, and a synchronous publish cannot await it: "
                "await publish_async or publish_many_async, or make the hook a plain function"
            )

    def run_before(self, events: list[Event]) -> list[Event]:
        """Run the `before_publish` hooks on a batch, and return the events to publish instead."""
        # A hook returns the list to publish, which may contain instances of event classes, or it changes the list in
        # place and returns None. An empty list publishes nothing.
        # Errors of hooks propagate.
        for hook in self.by_moment[HookMoment.BEFORE_PUBLISH]:
            events = _replace_events(hook, events, hook.call(events)) if events else events
        return events

    async def run_before_async(self, events: list[Event]) -> list[Event]:
        # Synchronous hooks are called, and asynchronous hooks are awaited.
        for hook in self.by_moment[HookMoment.BEFORE_PUBLISH]:
            if events:
                result = hook.call(events)
                events = _replace_events(hook, events, await result if inspect.isawaitable(result) else result)
        return events

    def notify(self, moment: HookMoment, events: list[Event]) -> None:
        """Call the hooks of a moment, such as `after_commit`, with the published events, and log the hooks' errors."""
        # The events do not include events whose idempotency key was used before.
        for hook in self.by_moment[moment]:
            try:
                hook.call([*events])
            except Exception as error:
                _log_hook_error(hook, error)

    async def notify_async(self, moment: HookMoment, events: list[Event]) -> None:
        """Call and await the hooks of a moment after the publish, and log the hooks' errors."""
        for hook in self.by_moment[moment]:
            try:
                result = hook.call([*events])
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                _log_hook_error(hook, error)


def _replace_events(hook: Hook, events: list[Event], result: Any) -> list[Event]:
    if result is None or isinstance(result, list | tuple):
        # A hook that changed the list in place may have added instances.
        return build_events(events if result is None else result)
    raise PublishError(
        f"{hook} returned a {type(result).__name__}: return a list of events, an empty one to publish nothing, or None"
    )


def _log_hook_error(hook: Hook, error: Exception) -> None:
    text = "the %s failed, which changes nothing about the events: %s"
    log_event(log, "publish_hook_failed", text, hook, error, trace=error, hook=str(hook))
