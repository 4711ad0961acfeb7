"""All observers of a process as one: each hook is handed on to those that override it.

An error of an observer is logged. An exception that passes through one is raised again even if it is swallowed there.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from partbox.events import DeliveredEvent, Event, checks
from partbox.observe.logs.log_event import is_ctrl_c, log_event
from partbox.observe.observer import Answer, Load, Observer, Started, Turn
from partbox.protocol.parking import Verdict

log = logging.getLogger("partbox.observe")

Hook = Callable[..., Any]


class Observers(Observer):
    """Calls each hook of the observers that override it; `hears("read")` is True if any does.

    One method for each hook of the protocol, which costs next to nothing while nobody hears it.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._everyone = tuple(observers)
        self._hooks = {name: tuple(_overridden(self._everyone, name)) for name in _names()}

    def hears(self, *names: str) -> bool:
        """True if an observer overrides one of these hooks."""
        return any(self._hooks[name] for name in names)

    def and_also(self, observer: Observer) -> "Observers":
        """These and one more."""
        return Observers([*self._everyone, observer])

    @contextmanager
    def publishing(self, events: Sequence[Event]) -> Iterator[dict[str, str]]:
        """Around the writing of a batch; yields the headers that the observers add to its events."""
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

    def published(self, events: Sequence[Event]) -> None:
        for hook in self._hooks["published"]:
            _call("published", hook, events)

    def started(self, worker: Started) -> None:
        for hook in self._hooks["started"]:
            _call("started", hook, worker)

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        for hook in self._hooks["claimed"]:
            _call("claimed", hook, partition, epoch, pause)

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        for hook in self._hooks["read"]:
            _call("read", hook, records, seconds, late_ids)

    def sending(self, handler: str, messages: int) -> None:
        for hook in self._hooks["sending"]:
            _call("sending", hook, handler, messages)

    def answered(self, handler: str, answer: Answer) -> None:
        for hook in self._hooks["answered"]:
            _call("answered", hook, handler, answer)

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        for hook in self._hooks["settled"]:
            _call("settled", hook, event, handler, verdict)

    def delivered(self, turn: Turn) -> None:
        for hook in self._hooks["delivered"]:
            _call("delivered", hook, turn)

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        for hook in self._hooks["parked"]:
            _call("parked", hook, event, handler, verdict, error, seconds)

    def circuit(self, handler: str, is_open: bool) -> None:
        for hook in self._hooks["circuit"]:
            _call("circuit", hook, handler, is_open)

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        for hook in self._hooks["saved"]:
            _call("saved", hook, partitions, parked, seconds)

    def refused(self, partitions: int) -> None:
        for hook in self._hooks["refused"]:
            _call("refused", hook, partitions)

    def released(self, partition: int) -> None:
        for hook in self._hooks["released"]:
            _call("released", hook, partition)

    def forgotten(self, partition: int) -> None:
        for hook in self._hooks["forgotten"]:
            _call("forgotten", hook, partition)

    def lost(self, partition: int) -> None:
        for hook in self._hooks["lost"]:
            _call("lost", hook, partition)

    def loaded(self, load: Load) -> None:
        for hook in self._hooks["loaded"]:
            _call("loaded", hook, load)

    def planned(self, moved: int) -> None:
        for hook in self._hooks["planned"]:
            _call("planned", hook, moved)

    def buried(self, instances: int) -> None:
        for hook in self._hooks["buried"]:
            _call("buried", hook, instances)


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


def _call(name: str, hook: Hook, *arguments: object) -> None:
    try:
        hook(*arguments)
    except BaseException as error:  # SystemExit too: no worker ends of it
        _log(name, error)


def _entered(stack: ExitStack, name: str, hook: Hook, *arguments: object) -> Any:
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
