"""All observers of a process as one: each hook is handed on to those that override it.

An error of an observer is logged. An exception that passes through one is raised again even if it is swallowed there.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from partbox.events import DeliveredEvent, Event, checks
from partbox.observe.logs.log_event import is_ctrl_c, log_event
from partbox.observe.observer import Observer

log = logging.getLogger("partbox.observe")

Hook = Callable[..., Any]


class Observers(Observer):
    """Calls each hook of the observers that override it; `has_hook("read")` is True if any does.

    It has a method for each hook of the protocol, made below, which costs next to nothing while nobody hears it.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._hooks = {name: tuple(_list_overrides(self._observers, name)) for name in _hook_names()}

    def has_hook(self, *names: str) -> bool:
        """True if an observer overrides one of these hooks."""
        return any(self._hooks[name] for name in names)

    def with_observer(self, observer: Observer) -> "Observers":
        """These and one more."""
        return Observers([*self._observers, observer])

    @contextmanager
    def publishing(self, events: Sequence[Event]) -> Iterator[dict[str, str]]:
        """Around the writing of a batch; yields the headers that the observers add to its events."""
        headers: dict[str, str] = {}
        with ExitStack() as stack:
            for hook in self._hooks["publishing"]:
                headers |= _valid_headers(_enter_hook(stack, "publishing", hook, events))
            yield headers

    @contextmanager
    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> Iterator[None]:
        """Around one call of a handler."""
        with ExitStack() as stack:
            for hook in self._hooks["handling"]:
                _enter_hook(stack, "handling", hook, events, handler)
            yield


def _hook_names() -> list[str]:
    return [name for name in vars(Observer) if not name.startswith("_")]


def _make_dispatcher(name: str) -> Hook:
    """The method that calls this hook of every observer that overrides it."""

    def method(self: Observers, *arguments: object) -> None:
        for hook in self._hooks[name]:
            try:
                hook(*arguments)
            except BaseException as error:  # SystemExit too: no worker ends of it
                _log(name, error)

    return method


for _name in _hook_names():
    if _name not in vars(Observers):  # all but those that return a context manager
        setattr(Observers, _name, _make_dispatcher(_name))


def _valid_headers(yielded: Any) -> dict[str, str]:
    """The headers that an observer yields; what cannot be headers is logged and left out."""
    try:
        return dict(checks.headers(yielded or {}))
    except Exception as error:
        _log("publishing", error)
        return {}


def _list_overrides(observers: Iterable[Observer], name: str) -> Iterator[Hook]:
    for observer in observers:
        if getattr(type(observer), name, None) is not getattr(Observer, name):
            yield getattr(observer, name)


def _enter_hook(stack: ExitStack, name: str, hook: Hook, *arguments: object) -> Any:
    """Enter the context manager that the hook returns and give what it yields; the stack leaves it."""
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
    log_event(log, "observer_failed", text, name, error, trace=error, hook=name)
