"""The base of all sinks, which turns events into messages and the broker's answers into outcomes.

Most brokers may refuse one message and take the next. So a batch is sent in *waves*, each with at most one event of an
aggregate, and events behind a failed one wait for another batch. A `gapless` sink keeps the order itself and gets the
whole batch at once."""

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

# The outcome of a message that was not sent, because an earlier one of its key was not accepted.
RETRY_LATER = RetryAfter(0)

# The outcome of a message: None if it arrived, UnrecoverableError if it never will, any other error to try again.
Result = BaseException | RetryAfter | None

NO_RESULTS: Final[Sequence[Result]] = ()
# Results after which the connections are opened anew.
UNREACHABLE: Final = (DownstreamUnavailable, RetryAfterError, ConnectionError, TimeoutError)


# Loggers of the libraries, by extra. They log every message: its URL at INFO and its payload at DEBUG.
LOGGERS: Final = {
    "rabbitmq": ("aio_pika", "aiormq"),
    "nats": ("nats",),
    "webhook": ("httpx2", "httpcore2"),
    "sqs": ("boto3", "botocore", "urllib3"),
}

# Seconds.
TIMEOUT = 30.0
# Seconds to close a connection that does not answer.
CLOSE_TIMEOUT = 5.0
# Seconds to wait for a broker's answer before workers start.
ANSWER_TIMEOUT: Final = 5.0

T = TypeVar("T")


class Sink:
    """The base class of sinks: handlers that send events to another system, such as a message broker.

    A subclass implements `send`, and may implement `check` and `close`.

        class Printer(Sink):
            async def send(self, messages):
                for message in messages:
                    print(message.topic, message.key, message.value)
                return [None] * len(messages)

        outbox.on("OrderPlaced")(Printer())

    `topic` is a template (see `Topic`), and `source` is the CloudEvents attribute. After `timeout` seconds without an
    answer, the broker counts as unreachable. A sink is copied to the worker processes before anything is open. It
    connects when it has something to send, and again after `close`."""

    max_size: ClassVar[int] = 500
    """The maximum number of events in a batch.

    All of them are in flight, for each of a process's `concurrency` batches.
    """
    gapless: ClassVar[bool] = False
    """True if `send` never delivers a message of a key after an earlier message of that key has failed."""

    _name = ""
    _observers = Observers()
    # Incremented whenever the connections are given up.
    _generation = 0
    _lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def per_key(self) -> int | None:
        """The maximum number of events of one aggregate in a batch, or None for no limit."""
        # Several would wait for each other, because they are sent in order.
        return None if self.gapless else 1

    def __init__(self, topic: str = DEFAULT, *, source: str = SOURCE, timeout: float = TIMEOUT) -> None:
        self.topic = Topic(topic)
        self._source = source
        self._timeout = timeout

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send messages to the broker and wait for its answers. Return None or an error for each message, in order.

        None means that the message has arrived, UnrecoverableError that it never will, and any other value that it is
        sent again. A raised exception is the result of all messages. After DownstreamUnavailable all events wait, and
        the sink is closed and connects again."""
        raise NotImplementedError

    def check(self) -> None:
        """Check before workers start that the sink can work. Raise SettingsError, with the remedy in one line, if
        nothing could ever be sent."""

    @property
    def trouble(self) -> str:
        """The client library's error message about a broker that does not answer, or an empty string."""
        # The text is for logs.
        return ""

    async def close(self) -> None:
        """Close all connections to the broker, when the worker ends or a connection does not answer."""

    def observed_by(self, name: str, observers: Observers) -> None:
        """Set the sink's handler name, and the observers to notify when messages are sent and answered."""
        # The worker calls this before it delivers.
        self._name, self._observers = name, observers

    async def handle(self, events: Sequence[DeliveredEvent]) -> list[object]:
        """Send a batch of events to the sink's broker, and return an outcome for each event."""
        if self.gapless:
            return [*await self._send_events(events)]
        outcomes: list[object] = [RETRY_LATER] * len(events)
        failed: set[tuple[str, str]] = set()
        for wave in _split_waves(events):
            places = [place for place in wave if _key_of(events[place]) not in failed]
            if not places:
                continue
            results = await self._send_events([events[place] for place in places])
            for place, result in zip(places, results, strict=True):
                outcomes[place] = result
                key = _key_of(events[place])
                if result is not None and key is not None:
                    failed.add(key)
            if any(isinstance(result, DownstreamUnavailable) for result in results):
                break
        return outcomes

    def _connect_lock(self) -> asyncio.Lock:
        # Each event loop has a lock of its own, because a process may run several workers one after the other.
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        return self._lock[1]

    def message(self, event: DeliveredEvent) -> Message:
        """Convert an event into the message to send to the broker, with its topic."""
        return Message(event, self.topic.of(event), self._source)

    async def _send_events(self, events: Sequence[DeliveredEvent]) -> Sequence[Result]:
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
        """Close the sink's connections, unless another batch has already done so, and let the next send connect
        again."""
        # `generation` is the number of the connections to close. It is counted up whenever connections are given up.
        # The server at their other end may have been demoted, and its address may lead to another server by now.
        # Another batch has closed them already, and the open connections are new.
        if generation != self._generation:
            return
        self._generation += 1
        # A broken connection may not answer the close either.
        with suppress(Exception):
            await asyncio.wait_for(self.close(), CLOSE_TIMEOUT)


def _build_answer(messages: int, results: Sequence[Result], seconds: float) -> Answer:
    taken = results.count(None)
    if taken == messages:
        return Answer(messages, taken, 0, 0, seconds, None)
    errors = [result for result in results if isinstance(result, BaseException)]
    refused = sum(isinstance(error, UnrecoverableError) for error in errors)
    error = errors[-1] if errors else None
    return Answer(messages, taken, refused, len(errors) - refused, seconds, error)


def _split_waves(events: Sequence[DeliveredEvent]) -> list[list[int]]:
    """Divide events into groups to send one after the other, with at most one event per aggregate in each."""
    # Events of one aggregate stay in order by that. Return the positions of the events.
    waves: list[list[int]] = []
    seen: dict[tuple[str, str], int] = {}
    for place, event in enumerate(events):
        key = _key_of(event)
        wave = 0 if key is None else seen.get(key, 0)
        if wave == len(waves):
            waves.append([])
        waves[wave].append(place)
        if key is not None:
            seen[key] = wave + 1
    return waves


def _key_of(event: DeliveredEvent) -> tuple[str, str] | None:
    return None if event.aggregate_id is None else (event.aggregate_type, event.aggregate_id)


def library(module: str, extra: str) -> Any:
    """Import and return the client library of a sink. Raise SettingsError, with the remedy, if it is not installed."""
    found = platform.library(module, extra, f"this target needs the library {module.partition('.')[0]}")
    _quiet_loggers(extra)
    return found


@cache
def _quiet_loggers(extra: str) -> None:
    """Set the loggers of a sink's client libraries to WARNING, unless the application has set a level."""
    for log in map(logging.getLogger, LOGGERS.get(extra, ())):
        if log.level == logging.NOTSET:
            log.setLevel(logging.WARNING)


def broker_answer(question: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine that asks a broker, and return the answer. Return None after a timeout or any error but
    SettingsError."""
    try:
        return asyncio.run(asyncio.wait_for(question, ANSWER_TIMEOUT))
    except SettingsError:
        raise
    except Exception:
        return None
