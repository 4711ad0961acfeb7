"""The handlers of a process of the model: each ends as the test says, and who watches hears what it does."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from fibers import aside, between, pause
from statements import ModelConnection

from partbox.events import DeliveredEvent
from partbox.handlers import Handlers

MOST_ATTEMPTS = 3
LIST = 3  # events of a list at most
MIXTURES = {"mixed": ("sync", "async", "lists", "effects"), "several": ("sync", "async", "lists")}
PENDING = object()
"""In the place of an outcome: it is done, if its transaction is committed."""


class Killed(BaseException):
    """The process of this fiber is dead."""


class Handling(NamedTuple):
    """A handler runs; it ends with what its fiber, or its future, is told: one outcome for each event. `letter`: it is
    the hook for dead events."""

    events: list[DeliveredEvent]
    letter: bool = False


class Watcher(Protocol):
    """Who hears what handlers of a process do."""

    def begins(self, process: Any, event: DeliveredEvent, before: Sequence[DeliveredEvent] = ()) -> None: ...
    def ends(self, process: Any, event: DeliveredEvent, outcome: object) -> None: ...
    def letter_begins(self, process: Any, event: DeliveredEvent) -> None: ...
    def letter_ends(self, event: DeliveredEvent, outcome: object) -> None: ...
    def connection(self, process: Any) -> ModelConnection: ...


class Shape(NamedTuple):
    """The handlers of a process, by the kinds of events that they take, and the settings that bound it."""

    concurrency: int = 2
    kind: str = "sync"  # sync | async | lists | async lists | effects, or of MIXTURES
    page: int = 30
    window: int = 8
    window_bytes: int = 1 << 20
    max_parked: int = 6
    max_attempts: int = MOST_ATTEMPTS
    letters: bool = False  # there is a hook for dead events
    on_dead: str = "continue"  # | block: later events of the key of a dead one wait
    lines: bool = False  # several runners take new events from the line of their partition
    rate: int = 0  # starts in a second, of each handler that is not transactional; 0: any number
    at_once: int = 0  # the same of calls that run at once
    limit_by: str = "event_type"  # what both hold for each value of
    circuit_by: str = ""  # ValueError says that the downstream of such a value is away
    max_waiting: int = 1 << 20
    spill_after: int = 200
    away: int = 0  # no handler could handle any event: reading stops at `max_parked` rows


class HandlingProcess:
    """The part of a process that is its handlers."""

    def __init__(self, watcher: Watcher, shape: Shape, loop: asyncio.AbstractEventLoop) -> None:
        self.watcher, self.shape = watcher, shape
        self.dead = False
        self.failure: BaseException | None = None
        self._loop = loop
        self._handling: dict[asyncio.Future[list[object]], Handling] = {}

    def check_turn(self, event: DeliveredEvent) -> None:
        """Fail if it is not the turn of this event."""
        raise NotImplementedError

    def handlers(self) -> Handlers:
        handlers, shape = Handlers(), self.shape
        kinds = MIXTURES.get(shape.kind, (shape.kind,))
        limits = {"rate": f"{shape.rate}/s"} if shape.rate else {}
        limits |= {"at_once": shape.at_once} if shape.at_once else {}
        limits |= {"limit_by": shape.limit_by} if limits else {}
        limits |= {"circuit_by": shape.circuit_by} if shape.circuit_by else {}
        for number, kind in enumerate(kinds):
            name = "*" if number == 0 else f"Type {number}"
            if "lists" in kind:
                handlers.on_batch(name, max_size=LIST, **limits)(
                    self._handle_async if "async" in kind else self._handle
                )
            elif kind == "async":
                handlers.on(name, **limits)(self._handle_async)
            elif kind == "effects":
                handlers.on(name, transactional=True)(self._handle_effect)
            else:
                handlers.on(name, **limits)(self._handle)
        if shape.letters:
            handlers.on_dead_letter(self._handle_letter)
        return handlers

    def _begin(self, given: Any, in_hand: Sequence[DeliveredEvent] = ()) -> Handling:
        events = given if isinstance(given, list) else [given]
        if self.dead:
            raise Killed
        with self._watched():
            self._check_limit(events)
        for at, event in enumerate(events):
            with self._watched():
                self.check_turn(event)
                self.watcher.begins(self, event, [*in_hand, *events[:at]])
        return Handling(events)

    def handling(self) -> list[tuple[Any, Handling]]:
        """The handlers that run, each with what `finish` takes."""
        raise NotImplementedError

    def _check_limit(self, events: Sequence[DeliveredEvent]) -> None:
        """No more calls run here than may in all processes, and no list has two values."""
        if not self.shape.at_once or self.shape.kind in MIXTURES or self.shape.kind == "effects":
            return
        (value,) = {getattr(event, self.shape.limit_by) for event in events}
        if self.shape.circuit_by:  # a probe starts beside the limit
            assert len({getattr(event, self.shape.circuit_by) for event in events}) == 1
            return
        others = [each for _, each in self.handling() if not each.letter]
        mine = [each for each in others if getattr(each.events[0], self.shape.limit_by) == value]
        assert len(mine) < self.shape.at_once, f"{events} begin beside {mine}"

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with aside():
                yield
        except AssertionError as error:  # which would be taken for the handler's own
            self.failure = self.failure or error
            raise

    def _end(self, handling: Handling, outcomes: list[object] | None, given: Any) -> Any:
        if self.dead or outcomes is None:
            raise Killed
        for event, outcome in zip(handling.events, outcomes, strict=True):
            self.watcher.ends(self, event, outcome)
        between("has returned")
        if isinstance(given, list):
            return outcomes
        if isinstance(outcomes[0], BaseException):
            raise outcomes[0]
        return None if outcomes[0] is PENDING else outcomes[0]

    def _handle(self, given: Any) -> Any:
        handling = self._begin(given)
        return self._end(handling, pause(handling), given)

    async def _handle_async(self, given: Any) -> Any:
        handling = self._begin(given)
        future: asyncio.Future[list[object]] = self._loop.create_future()
        self._handling[future] = handling
        return self._end(handling, await future, given)

    def _handle_effect(self, event: DeliveredEvent, conn: Any) -> Any:
        """It is done when its transaction is committed, and until then for what follows in that."""
        handling = self._begin(event, conn.in_hand)
        outcomes = pause(handling)
        if outcomes == [None]:
            conn.effect(event)
            outcomes = [PENDING]
        return self._end(handling, outcomes, event)

    def _handle_letter(self, event: DeliveredEvent, _: str) -> None:
        """The hook for dead events."""
        if self.dead:
            raise Killed
        with self._watched():
            self.watcher.letter_begins(self, event)
        outcomes = pause(Handling([event], letter=True))
        if self.dead or outcomes is None:
            raise Killed
        self.watcher.letter_ends(event, outcomes[0])
        between("has returned")
        if outcomes[0] is not None:
            raise ValueError("no")
