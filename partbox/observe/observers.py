"""All observers of a process as one: calls each hook of those that override it."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from partbox.events import DeliveredEvent
from partbox.observe.observer import Observer

log = logging.getLogger("partbox.observe")

Hook = Callable[..., Any]


def _nothing(*_: object) -> None:
    """For a hook that nobody overrides."""


class Observers:
    """`observers.delivered(turn)` and so on; `observers.hears("read")` says whether anybody wants to know.

    `handling` is a context manager of all of theirs.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        everyone = tuple(observers)
        self._hooks = {name: tuple(_overridden(everyone, name)) for name in _names()}
        for name, hooks in self._hooks.items():
            if name != "handling":
                setattr(self, name, _told(name, hooks) if hooks else _nothing)

    def __getattr__(self, name: str) -> Hook:  # for types: the hooks are attributes of the instance
        raise AttributeError(f"there is no hook {name!r}")

    def hears(self, *names: str) -> bool:
        """Whether an observer overrides one of these hooks."""
        return any(self._hooks[name] for name in names)

    @contextmanager
    def handling(self, event: DeliveredEvent, handler: str) -> Iterator[None]:
        """Around one call of a handler."""
        with ExitStack() as stack:
            for hook in self._hooks["handling"]:
                try:
                    around = hook(event, handler)
                    if around is not None:
                        stack.enter_context(around)
                except Exception as error:
                    _log("handling", error)
            yield


def _names() -> list[str]:
    return [name for name in vars(Observer) if not name.startswith("_")]


def _overridden(observers: Iterable[Observer], name: str) -> Iterator[Hook]:
    for observer in observers:
        if getattr(type(observer), name, None) is not getattr(Observer, name):
            yield getattr(observer, name)


def _told(name: str, hooks: tuple[Hook, ...]) -> Hook:
    def tell(*arguments: object) -> None:
        for hook in hooks:
            try:
                hook(*arguments)
            except Exception as error:
                _log(name, error)

    return tell


def _log(name: str, error: Exception) -> None:
    with suppress(Exception):
        log.error("an observer's %s failed, which changes nothing else: %s", name, error, exc_info=error)
