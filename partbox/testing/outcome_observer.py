"""The observer of a drain: notes the outcome of each event."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import get_args

from partbox.events import DeliveredEvent
from partbox.observe import Observer
from partbox.protocol.verdict import Verdict
from partbox.testing.outcomes import Settled, State

NOT_FATAL = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Errors that are the handler's own; any other (Ctrl-C, pytest.fail, a timeout of pytest) also ends the drain."""


@dataclass(slots=True)
class _Note:
    event: DeliveredEvent
    handler: str
    verdict: Verdict | None
    error: BaseException | None


class Noting(Observer):
    """Notes of one drain; `on_settled` is called with each event that has an outcome."""

    def __init__(self, on_settled: Callable[[Sequence[DeliveredEvent]], None]) -> None:
        self._on_settled = on_settled
        self._notes: list[_Note] = []
        self._raised: dict[int, BaseException] = {}
        self.fatal: BaseException | None = None

    def __len__(self) -> int:
        return len(self._notes)

    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> AbstractContextManager[object]:
        return self._handling(events)

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        self._notes.append(_Note(event, handler, verdict, self._raised.pop(event.id, None)))
        self._on_settled([event])

    def parked(
        self,
        event: DeliveredEvent,
        handler: str,
        verdict: Verdict,
        error: BaseException | None,
        seconds: float | None,
    ) -> None:
        for note in reversed(self._notes):
            if note.event is event:
                note.error = error or note.error
                return

    def settlements(self) -> list[Settled]:
        """The outcome of each event so far, in order."""
        return [_settled(note) for note in self._notes]

    @contextmanager
    def _handling(self, events: Sequence[DeliveredEvent]) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._raised.update((event.id, error) for event in events)
            if not isinstance(error, NOT_FATAL):
                self.fatal = self.fatal or error
            raise


def _settled(note: _Note) -> Settled:
    if note.verdict is None:
        state: State = "done" if note.error is None else "ignored"
        attempts, due, reason = 0, None, None if note.error is None else repr(note.error)
    else:
        verdict = note.verdict
        state = verdict.state if verdict.state in get_args(State) else "held"  # type: ignore[assignment]
        attempts, due, reason = verdict.attempts, verdict.delay, verdict.error
    return Settled(note.event, note.handler, state, attempts, due, note.error, reason)
