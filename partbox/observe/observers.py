"""All observers of a process as one: calls each hook of those that override it.

Whatever an observer raises is logged, and an exception that passes through one goes on whatever it makes of it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from partbox.events import DeliveredEvent, Event, checks
from partbox.observe.observer import Observer
from partbox.observe.telling import is_ctrl_c, tell

log = logging.getLogger("partbox.observe")

Hook = Callable[..., Any]

AROUND = ("publishing", "handling")  # hooks that give context managers


def _nothing(*_: object) -> None:
    """For a hook that nobody overrides."""


class Observers:
    """`observers.delivered(turn)` and so on; `observers.hears("read")` says whether anybody wants to know."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._everyone = tuple(observers)
        self._hooks = {name: tuple(_overridden(self._everyone, name)) for name in _names()}
        for name, hooks in self._hooks.items():
            if name not in AROUND:
                setattr(self, name, _told(name, hooks) if hooks else _nothing)

    def __getattr__(self, name: str) -> Hook:  # for types: the hooks are attributes of the instance
        raise AttributeError(f"there is no hook {name!r}")

    def hears(self, *names: str) -> bool:
        """Whether an observer overrides one of these hooks."""
        return any(self._hooks[name] for name in names)

    def and_also(self, observer: Observer) -> "Observers":
        """These and one more."""
        return Observers([*self._everyone, observer])

    @contextmanager
    def publishing(self, events: Sequence[Event]) -> Iterator[dict[str, str]]:
        """Around the writing of a batch; the headers that they want its events to have."""
        headers: dict[str, str] = {}
        with ExitStack() as stack:
            for hook in self._hooks["publishing"]:
                headers |= _wanted(_entered(stack, "publishing", hook, events))
            yield headers

    @contextmanager
    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> Iterator[None]:
        """Around one call of a handler."""
        with ExitStack() as stack:
            for hook in self._hooks["handling"]:
                _entered(stack, "handling", hook, events, handler)
            yield


def _wanted(yielded: Any) -> dict[str, str]:
    """The headers that an observer yields; what cannot be headers is logged and left out."""
    try:
        return dict(checks.headers(yielded or {}))
    except Exception as error:
        _log("publishing", error)
        return {}


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
            except BaseException as error:  # SystemExit too: no worker ends of it
                _log(name, error)

    return tell


def _entered(stack: ExitStack, name: str, hook: Hook, *arguments: object) -> Any:
    """What the context manager that the hook gives yields; the stack leaves it."""
    try:
        around = hook(*arguments)
        if around is None:
            return None
        yielded = around.__enter__()
    except BaseException as error:
        _log(name, error)
        return None

    def leave(*raised: Any) -> None:
        try:
            around.__exit__(*raised)
        except BaseException as error:
            if error is not raised[1]:
                _log(name, error)

    stack.push(leave)
    return yielded


def _log(name: str, error: BaseException) -> None:
    if is_ctrl_c(error):
        raise error
    text = "an observer's %s failed, which changes nothing else: %s"
    tell(log, "observer_failed", text, name, error, trace=error, hook=name)
