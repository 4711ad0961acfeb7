"""All observers of a process as one. Errors of observers are logged. An exception of a handler or publisher is raised
again even if an observer's context manager swallows it."""

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
    """A group of observers that passes each notification on to its members.

    A notification goes to the members that override its hook. Methods for all hooks of the protocol are generated
    below. A hook without listeners costs next to nothing."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._hooks = {name: tuple(_list_overrides(self._observers, name)) for name in _list_hook_names()}

    def has_hook(self, *names: str) -> bool:
        """Return True if any of the observers overrides one of the named hooks."""
        return any(self._hooks[name] for name in names)

    def with_observer(self, observer: Observer) -> "Observers":
        return Observers([*self._observers, observer])

    @contextmanager
    def publishing(self, events: Sequence[Event]) -> Iterator[dict[str, str]]:
        headers: dict[str, str] = {}
        with ExitStack() as stack:
            for hook in self._hooks["publishing"]:
                headers |= _check_headers(_enter_hook(stack, "publishing", hook, events))
            yield headers

    @contextmanager
    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> Iterator[None]:
        with ExitStack() as stack:
            for hook in self._hooks["handling"]:
                _enter_hook(stack, "handling", hook, events, handler)
            yield


def _list_hook_names() -> list[str]:
    return [name for name in vars(Observer) if not name.startswith("_")]


def _make_dispatcher(name: str) -> Hook:

    def method(self: Observers, *arguments: object) -> None:
        for hook in self._hooks[name]:
            try:
                hook(*arguments)
            # SystemExit too: an observer must not end a worker.
            except BaseException as error:
                _log_failure(name, error)

    return method


for _name in _list_hook_names():
    # Hooks that return a context manager have methods of their own above.
    if _name not in vars(Observers):
        setattr(Observers, _name, _make_dispatcher(_name))


def _check_headers(yielded: Any) -> dict[str, str]:
    # Headers that are not valid are logged and dropped.
    try:
        return dict(checks.check_headers(yielded or {}))
    except Exception as error:
        _log_failure("publishing", error)
        return {}


def _list_overrides(observers: Iterable[Observer], name: str) -> Iterator[Hook]:
    for observer in observers:
        if getattr(type(observer), name, None) is not getattr(Observer, name):
            yield getattr(observer, name)


def _enter_hook(stack: ExitStack, name: str, hook: Hook, *arguments: object) -> Any:
    """Enter the context manager that an observer's hook returns, and return the value that it yields."""
    # The exit of the context manager is pushed on the stack.
    try:
        around = hook(*arguments)
        if around is None:
            return None
        yielded = around.__enter__()
    except BaseException as error:
        _log_failure(name, error)
        return None

    def leave(*raised: Any) -> None:
        try:
            around.__exit__(*raised)
        except BaseException as error:
            if error is not raised[1]:
                _log_failure(name, error)

    stack.push(leave)
    return yielded


def _log_failure(name: str, error: BaseException) -> None:
    if is_ctrl_c(error):
        raise error
    text = "an observer's %s failed, which changes nothing else: %s"
    log_event(log, "observer_failed", text, name, error, trace=error, hook=name)
