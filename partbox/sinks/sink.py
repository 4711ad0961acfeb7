"""The base of all sinks: a list of events becomes messages, and the broker's answers become their outcomes.

**Order.** The events of an aggregate are in order at the broker if none is sent before those ahead of it are there.
Most brokers may refuse one message and take the next; so a list goes in *waves*, each with one event of an aggregate
at most, and what follows an event that failed waits for another list. A `gapless` sink keeps that promise itself, and
gets the whole list at once.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, Final, TypeVar

from partbox import platform
from partbox.errors import DownstreamUnavailable, RetryAfterError, SettingsError, UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.observe import Answer, Observers
from partbox.outcomes import RetryAfter
from partbox.sinks.message import DEFAULT, SOURCE, Message, Topic

RETRY_LATER = RetryAfter(0)
"""The outcome of a message that was not sent, because an earlier one of its key was not accepted."""

Result = BaseException | RetryAfter | None
"""The outcome of a message: None, it is there; UnrecoverableError, it never will be; any other error, try again."""

NO_RESULTS: Final[Sequence[Result]] = ()
UNREACHABLE: Final = (DownstreamUnavailable, RetryAfterError, ConnectionError, TimeoutError)
"""Results after which connections are made anew."""


LOGGERS: Final = {
    "rabbitmq": ("aio_pika", "aiormq"),
    "nats": ("nats",),
    "webhook": ("httpx2", "httpcore2"),
    "sqs": ("boto3", "botocore", "urllib3"),
}
"""Loggers of the libraries of an extra. They log every message: its URL at INFO, its payload at DEBUG."""

TIMEOUT = 30.0  # seconds
CLOSE_TIMEOUT = 5.0  # seconds for a connection that does not answer to be closed
ANSWER_TIMEOUT: Final = 5.0  # seconds for an answer before workers start

T = TypeVar("T")


class Sink:
    """A place that events are sent to; the base of all sinks. A subclass has `send`, and may have `open` and `close`.

        class Printer(Sink):
            async def send(self, messages):
                for message in messages:
                    print(message.topic, message.key, message.value)
                return [None] * len(messages)

        outbox.on("OrderPlaced")(Printer())

    `topic` is a template, see `Topic`; `source` the CloudEvents attribute; after `timeout` seconds without an answer
    the broker counts as out of reach. A sink is made once, in the application, and copied to its worker processes
    before anything is open: it connects when it has something to send, and again after `close`.
    """

    max_size: ClassVar[int] = 500
    """The maximum number of events in a list; all of it is in flight, for each of `concurrency` lists of a process."""
    gapless: ClassVar[bool] = False
    """True if `send` delivers no message of a key after one that failed."""

    _name = ""
    _observers = Observers()
    _generation = 0  # raised whenever connections are given up
    _lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def per_key(self) -> int | None:
        """The maximum number of events of an aggregate in a list: several would wait for each other."""
        return None if self.gapless else 1

    def __init__(self, topic: str = DEFAULT, *, source: str = SOURCE, timeout: float = TIMEOUT) -> None:
        self.topic = Topic(topic)
        self._source = source
        self._timeout = timeout

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send these messages and wait for the broker; return a result for each, in order.

        An exception is the result of all. DownstreamUnavailable: the broker cannot be reached, and all events wait;
        the sink is closed, and connects anew.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Before workers start: SettingsError, in one line with the remedy, if nothing could ever be sent."""

    @property
    def trouble(self) -> str:
        """The library's error about a broker that does not answer; empty if there is none."""
        return ""

    async def close(self) -> None:
        """Close what is open; when the worker ends, or a connection does not answer."""

    def observed_by(self, name: str, observers: Observers) -> None:
        """Report to these observers, under this name; called by the worker before it delivers."""
        self._name, self._observers = name, observers

    async def handle(self, events: Sequence[DeliveredEvent]) -> list[object]:
        """Send a list; an outcome for each event."""
        if self.gapless:
            return [*await self._send(events)]
        outcomes: list[object] = [RETRY_LATER] * len(events)
        failed: set[tuple[str, str]] = set()
        for wave in _waves(events):
            places = [place for place in wave if _key(events[place]) not in failed]
            if not places:
                continue
            results = await self._send([events[place] for place in places])
            for place, result in zip(places, results, strict=True):
                outcomes[place] = result
                key = _key(events[place])
                if result is not None and key is not None:
                    failed.add(key)
            if any(isinstance(result, DownstreamUnavailable) for result in results):
                break
        return outcomes

    def _connect_lock(self) -> asyncio.Lock:
        """The lock for connecting. Each event loop has its own: a process may have several workers in turn."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        return self._lock[1]

    def message(self, event: DeliveredEvent) -> Message:
        """The message of an event."""
        return Message(event, self.topic.of(event), self._source)

    async def _send(self, events: Sequence[DeliveredEvent]) -> Sequence[Result]:
        """Send, and tell the observers."""
        started, results = time.monotonic(), NO_RESULTS
        self._observers.sending(self._name, len(events))
        try:
            results = await self._send_safely(events)
        finally:
            self._observers.answered(self._name, _build_answer(len(events), results, time.monotonic() - started))
        return results

    async def _send_safely(self, events: Sequence[DeliveredEvent]) -> Sequence[Result]:
        generation, results = self._generation, NO_RESULTS
        try:
            async with asyncio.timeout(self._timeout):
                results = await self.send([self.message(event) for event in events])
        except TimeoutError:
            words = f"no answer from the broker in {self._timeout:g} s"
            trouble = self.trouble
            results = [DownstreamUnavailable(f"{words}; {trouble}" if trouble else words)] * len(events)
        except Exception as raised:
            results = [raised] * len(events)
        if any(isinstance(result, UNREACHABLE) for result in results):
            await self._drop_connections(generation)
        return results

    async def _drop_connections(self, generation: int) -> None:
        """Give up the connections of this age: the server at their other end may have been demoted, and the address
        lead to another by now."""
        if generation != self._generation:  # another list has, and what is open now is new
            return
        self._generation += 1
        with suppress(Exception):  # it may not answer to that either
            await asyncio.wait_for(self.close(), CLOSE_TIMEOUT)


def _build_answer(messages: int, results: Sequence[Result], seconds: float) -> Answer:
    taken = results.count(None)
    if taken == messages:
        return Answer(messages, taken, 0, 0, seconds, None)
    errors = [result for result in results if isinstance(result, BaseException)]
    refused = sum(isinstance(error, UnrecoverableError) for error in errors)
    error = errors[-1] if errors else None
    return Answer(messages, taken, refused, len(errors) - refused, seconds, error)


def _waves(events: Sequence[DeliveredEvent]) -> list[list[int]]:
    """The places of the events, in lists in which no aggregate comes twice, and each in its order over them."""
    waves: list[list[int]] = []
    seen: dict[tuple[str, str], int] = {}
    for place, event in enumerate(events):
        key = _key(event)
        wave = 0 if key is None else seen.get(key, 0)
        if wave == len(waves):
            waves.append([])
        waves[wave].append(place)
        if key is not None:
            seen[key] = wave + 1
    return waves


def _key(event: DeliveredEvent) -> tuple[str, str] | None:
    return None if event.aggregate_id is None else (event.aggregate_type, event.aggregate_id)


def library(module: str, extra: str) -> Any:
    """The module; SettingsError with the remedy if it is not installed."""
    found = platform.library(module, extra, f"sending there needs the library {module.partition('.')[0]}")
    _quiet_loggers(extra)
    return found


@cache
def _quiet_loggers(extra: str) -> None:
    """Set their level to WARNING, unless the application has set one."""
    for log in map(logging.getLogger, LOGGERS.get(extra, ())):
        if log.level == logging.NOTSET:
            log.setLevel(logging.WARNING)


def broker_answer(question: Coroutine[Any, Any, T]) -> T | None:
    """The answer of the broker, or None if there is none now; raises SettingsError."""
    try:
        return asyncio.run(asyncio.wait_for(question, ANSWER_TIMEOUT))
    except SettingsError:
        raise
    except Exception:
        return None
