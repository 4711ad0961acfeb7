"""NATS JetStream sink, by nats-py: `nats://HOST:PORT`, with commas between several, or `tls://…`.

A stream must take the subject, which is the topic. The event id is the `Nats-Msg-Id`, so that a stream drops
repetitions within its duplicate window."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.message import DEFAULT, Message, ascii_headers
from partbox.sinks.sink import Result, Sink, broker_answer, library
from partbox.text.dsn import query_of
from partbox.text.secrets import mask_url

CONNECT_TIMEOUT: Final = 5  # seconds
# The server's error JSStreamMessageExceedsMaximumErr.
TOO_LARGE: Final = 10054
# JetStream does not work on this server now: no peers, no leader, a timeout, no resources, or not enabled.
UNAVAILABLE_CODES: Final = (10005, 10008, 10009, 10010, 10023, 10039, 10076)


class NatsSink(Sink):
    """A sink that sends events to NATS JetStream.

    `servers` are URLs. CloudEvents attributes are headers with the names of the NATS binding: `ce-id` and so on."""

    def __init__(self, servers: str | Sequence[str], topic: str = DEFAULT, **options: Any) -> None:
        super().__init__(topic, **options)
        self._servers = [servers] if isinstance(servers, str) else [*servers]
        self._connection: Any = None
        self._stream: Any = None
        self._lost_event: asyncio.Event | None = None
        self._refusal: asyncio.Event
        self._refusals = 0
        # Largest message in bytes, as the server reports it.
        self._max_message_size = 0

    @classmethod
    def from_url(cls, url: str, topic: str) -> "NatsSink":
        parts = urlsplit(url)
        if not parts.netloc or parts.path not in ("", "/"):
            raise SettingsError(f"{mask_url(url)!r} names no servers: write nats://HOST:4222, commas between several")
        query_of(url, ())
        return cls([f"{parts.scheme}://{each}" for each in parts.netloc.split(",")], topic)

    def check(self) -> None:
        """Raise SettingsError if the client library is missing, or if no stream takes a fixed topic."""
        library("nats", "nats")
        if self.topic.fixed and broker_answer(self._lacks_topic(self.topic.fixed)):
            raise SettingsError(_format_no_stream(self.topic.fixed))

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        errors = library("nats.errors", "nats")
        try:
            stream = await self._connect()
        except (errors.Error, OSError) as error:
            raise DownstreamUnavailable(f"NATS cannot be reached: {error}") from error
        before = self._refusals
        sent = [await self._publish_message(stream, message) for message in messages]
        answers = await self._gather_answers(sent, before)
        # The server has refused a message, and each message without an answer may be the one. Sent again with their
        # ids, each gets an answer of its own.
        unknown = [place for place, said in enumerate(answers) if isinstance(said, asyncio.CancelledError)]
        if unknown and self._lost_event is not None and not self._lost_event.is_set():
            resent = (self._resend_message(stream, messages[place]) for place in unknown)
            for place, said in zip(unknown, await asyncio.gather(*resent, return_exceptions=True), strict=True):
                answers[place] = said
        return [
            _result_of(message, said) if isinstance(said, BaseException) else None
            for message, said in zip(messages, answers, strict=True)
        ]

    async def close(self) -> None:
        connection, self._connection, self._stream = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _gather_answers(self, sent: Sequence[asyncio.Future[Any]], before: int) -> list[object]:
        """Wait for the answers of NATS JetStream to published messages. Return them in order, an unknown answer as
        CancelledError."""
        # An answer is unknown when the connection is lost or when a message is refused: nats-py reports neither to
        # callers that wait for an answer.
        assert self._lost_event is not None
        lost: asyncio.Future[Any] = asyncio.ensure_future(self._lost_event.wait())
        refused: asyncio.Future[Any] = asyncio.ensure_future(self._wait_refusal(before))
        answers: asyncio.Future[Any] = asyncio.gather(*sent, return_exceptions=True)
        try:
            await asyncio.wait([answers, lost, refused], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (*sent, lost, refused):
                each.cancel()
        return list(await answers)

    async def _wait_refusal(self, before: int) -> None:
        while self._refusals == before:
            await self._refusal.wait()

    async def _on_error(self, error: Exception) -> None:
        """Wake senders that wait for answers if the NATS client reports a refused message outside of a call."""
        # An example is an answer that refuses a message without naming it.
        if isinstance(error, library("nats.js.errors", "nats").APIError):
            self._refusals += 1
            # Wake all current waiters, then reset the event for later refusals.
            self._refusal.set()
            self._refusal.clear()

    async def _resend_message(self, stream: Any, message: Message) -> None:
        # Unlike `publish_async`, this call reports a refusal.
        await stream.publish(message.topic, message.value, timeout=self._timeout, headers=_build_headers(message))

    async def _connect(self) -> Any:
        async with self._connect_lock():
            if self._connection is None or self._connection.is_closed:
                self._lost_event = lost = asyncio.Event()
                self._refusal = asyncio.Event()

                # Bound to the event of this connection, so that the end of an earlier one does not count.
                async def on_closed() -> None:
                    lost.set()

                self._connection = await self._open_connection(on_closed)
                self._stream, self._max_message_size = None, self._connection.max_payload
            self._stream = self._stream or self._connection.jetstream()
        return self._stream

    async def _open_connection(self, closed: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Any:
        # A reconnect would lose the messages in flight silently.
        return await library("nats", "nats").connect(
            self._servers,
            name="partbox",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT,
            error_cb=self._on_error,
            closed_cb=closed,
        )

    async def _lacks_topic(self, subject: str) -> bool:
        connection = await self._open_connection()
        try:
            await connection.jetstream().find_stream_name_by_subject(subject)
        except library("nats.js.errors", "nats").NotFoundError:
            return True
        finally:
            await connection.close()
        return False

    async def _publish_message(self, stream: Any, message: Message) -> asyncio.Future[Any]:
        # If the message cannot be sent, the future holds the error.
        headers = _build_headers(message)
        # The library does not count the headers, and the server closes the shared connection if a message is too large.
        if (size := len(message.value) + _measure_headers(headers)) > self._max_message_size:
            text = f"NATS takes no message of {size:,} bytes, headers included: raise its max_payload"
            return _make_failed_future(UnrecoverableError(text))
        try:
            return await stream.publish_async(message.topic, message.value, headers=headers)  # type: ignore[no-any-return]
        except Exception as error:
            # The client counts a refused message as in flight for ever, and stops at 4,000 of them, so a new one is
            # made.
            if self._stream is stream:
                self._stream = None
            return _make_failed_future(error)


def _build_headers(message: Message) -> dict[str, str]:
    headers = ascii_headers(message.bound("ce-", "content-type"))
    headers["Nats-Msg-Id"] = message.id
    return headers


def _make_failed_future(error: Exception) -> asyncio.Future[Any]:
    refused = asyncio.get_running_loop().create_future()
    refused.set_exception(error)
    return refused


def _result_of(message: Message, said: BaseException) -> Result:
    errors, answers = library("nats.errors", "nats"), library("nats.js.errors", "nats")
    match said:
        case answers.NoStreamResponseError():
            return LookupError(_format_no_stream(message.topic))
        case errors.BadSubjectError():
            return UnrecoverableError(f"NATS: {message.topic!r} is not a subject")
        case answers.APIError():
            text = f"NATS says {said.description} ({said.err_code})"
            if said.err_code in UNAVAILABLE_CODES:
                return DownstreamUnavailable(text)
            return UnrecoverableError(text) if said.err_code == TOO_LARGE else RuntimeError(text)
        case asyncio.CancelledError():
            return DownstreamUnavailable("the connection to NATS was lost")
        case errors.Error() | OSError() | TimeoutError():
            return DownstreamUnavailable(f"NATS: {said}")
    return said


def _measure_headers(headers: Mapping[str, str]) -> int:
    """Return the size of a message's headers on the wire, in bytes."""
    # The headers are ASCII.
    texts = sum(map(len, headers)) + sum(map(len, headers.values()))
    return len("NATS/1.0\r\n\r\n") + len(": \r\n") * len(headers) + texts


def _format_no_stream(subject: str) -> str:
    return f"no NATS stream takes the subject {subject!r}: add a stream, or add the subject to one"
