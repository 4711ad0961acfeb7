"""The part of an outbox that registers handlers."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Unpack

from partbox.handlers.options import Options
from partbox.handlers.registry import BATCH, AnyHandler, Handlers


class Registrar:
    """Registers in `handlers`."""

    def __init__(self) -> None:
        self.handlers = Handlers()

    def on(
        self,
        event_type: str | Enum,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Decorates the handler of these events; `"*"` is every type, None any aggregate type."""
        return self.handlers.on(event_type, aggregate_type, subscription, **options)

    def register(
        self,
        handler: Any,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> None:
        """Registers a function, or an object with `handle` that may carry its types itself."""
        self.handlers.register(handler, event_type, aggregate_type, subscription, **options)

    def on_batch(
        self,
        event_type: str | Enum,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        *,
        max_size: int = BATCH,
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Decorates the handler of *lists* of these events: what waits now, at most `max_size`.

        It may return a list with an outcome per event; an exception in it is that event's error.
        """
        return self.handlers.on_batch(event_type, aggregate_type, subscription, max_size=max_size, **options)

    def intercept(self, interceptor: AnyHandler) -> AnyHandler:
        """Adds an interceptor around every handler; see `partbox.interceptors`."""
        return self.handlers.intercept(interceptor)

    def on_dead_letter(self, hook: AnyHandler) -> AnyHandler:
        """Decorates what is called, at least once, for each dead event: `hook(event)` or `hook(event, error)`."""
        return self.handlers.on_dead_letter(hook)
