"""A sink that keeps its messages, in place of a broker."""

import asyncio
from collections import deque
from collections.abc import Sequence

from partbox.errors import UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import Result, Sink


class RecordingSink(Sink):
    """Keeps every message that it takes in `messages`, in their order.

    `delay`: seconds that it takes to answer.
    """

    def __init__(self, topic: str = DEFAULT, *, delay: float = 0.0) -> None:
        super().__init__(topic)
        self.messages: list[Message] = []
        self.delay = delay
        self._results: deque[Result] = deque()
        self._failures: deque[BaseException] = deque()

    def fail_next(self, error: BaseException, times: int = 1) -> None:
        """The next `times` sendings fail with this error, all of their messages: DownstreamUnavailable is an outage."""
        self._failures.extend([error] * times)

    def reject_next(self, times: int = 1, reason: str = "the broker refuses it") -> None:
        """The next `times` messages are refused for good: their events are dead."""
        self._results.extend([UnrecoverableError(reason)] * times)

    def sent(self, topic: str | None = None, key: object = None) -> list[Message]:
        """The messages that went to this topic, under this key."""
        wanted = None if key is None else str(key)
        return [each for each in self.messages if topic in (None, each.topic) and wanted in (None, each.key)]

    def clear(self) -> None:
        """Forget the messages, and the failures to come."""
        self.messages.clear()
        self._results.clear()
        self._failures.clear()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        await asyncio.sleep(self.delay)
        if self._failures:
            raise self._failures.popleft()
        results = [self._results.popleft() if self._results else None for _ in messages]
        self.messages += [message for message, result in zip(messages, results, strict=True) if result is None]
        return results


class StandIn(Sink):
    """Replaces an application's sink: its messages, with its topics, go to a recording sink."""

    def __init__(self, original: Sink, recording: RecordingSink) -> None:
        super().__init__()
        self._original = original
        self._recording = recording
        self.gapless = original.gapless  # type: ignore[misc]

    def message(self, event: DeliveredEvent) -> Message:
        return self._original.message(event)

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        return await self._recording.send(messages)
