"""Webhook sink, by httpx2: a POST for each event to `https://…` or `http://…`.

With a secret, requests are signed as Standard Webhooks defines
(https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md)."""

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from partbox.errors import DownstreamUnavailable, RetryAfterError, SettingsError, UnrecoverableError
from partbox.sinks.message import DEFAULT, Message, ascii_headers
from partbox.sinks.sink import Result, Sink, library
from partbox.text.secrets import mask_url

# Statuses of a client error that may pass.
RETRY_STATUSES: Final = (408, 425, 429)
# Statuses of a proxy whose application is down. Many events in a row with them mean an outage.
GATEWAY_STATUSES: Final = (
    502,
    503,
    504,
)
# Characters of an answer shown in an error.
SHOWN: Final = 200
# Bytes read of an answer's body. The connection is closed if the body is longer.
MAX_BODY: Final = 16_384
# Most seconds that a Retry-After may ask for.
LONGEST: Final = 3_600.0
PREFIX: Final = "whsec_"

# The library would log each request with its URL, which may hold secrets.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class WebhookSink(Sink):
    """A sink that sends events to a URL by HTTP POST, at most `connections` at once.

    `secret` is `whsec_` and base64, or None for unsigned requests. CloudEvents attributes are headers named by the HTTP
    binding: `ce-id` and so on."""

    # No more than there are connections, because waiting for a connection spends the time of the answer.
    max_size = 20

    def __init__(
        self, url: str, topic: str = DEFAULT, *, secret: str | None = None, connections: int = 20, **options: Any
    ) -> None:
        super().__init__(topic, **options)
        self._url = url
        self._key = None if secret is None else _decode_key(secret)
        self._connections = connections
        self._open: Any = None

    @classmethod
    def from_url(cls, url: str, topic: str, secret: str | None = None) -> "WebhookSink":
        parts = urlsplit(url)
        if not parts.hostname:
            raise SettingsError(f"{mask_url(url)!r} names no host: write a URL such as https://example.org/hooks")
        if parts.fragment:
            place = mask_url(url.partition("#")[0])
            raise SettingsError(f"{place!r} is followed by a #, and what comes after # is never sent: leave that out")
        return cls(url, topic, secret=secret)

    def check(self) -> None:
        """Raise SettingsError if the HTTP client library for webhooks is not installed."""
        library("httpx2", "webhook")

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        if self._open is None:
            self._open = self._make_client()
        client = self._open
        return await asyncio.gather(*(self._post_message(client, message) for message in messages))

    async def close(self) -> None:
        client, self._open = self._open, None
        if client is not None:
            await client.aclose()

    def _make_client(self) -> Any:
        httpx2 = library("httpx2", "webhook")
        limits = httpx2.Limits(max_connections=self._connections, max_keepalive_connections=self._connections)
        return httpx2.AsyncClient(timeout=self._timeout, limits=limits, follow_redirects=False)

    async def _post_message(self, client: Any, message: Message) -> Result:
        httpx2 = library("httpx2", "webhook")
        headers = self._build_headers(message)
        try:
            async with client.stream("POST", self._url, content=message.value, headers=headers) as answer:
                return _result_of(answer, await _read_beginning(answer))
        except (httpx2.TransportError, OSError) as error:
            return DownstreamUnavailable(f"{mask_url(self._url)}: {type(error).__name__} {error}".rstrip())

    def _build_headers(self, message: Message) -> dict[str, str]:
        given = ascii_headers(message.bound("ce-", "Content-Type"))
        now = str(int(time.time()))
        own_headers = {"webhook-id": message.id, "webhook-timestamp": now, "Idempotency-Key": message.id}
        # Nothing but the beginning of an error's text is read, which must not be compressed.
        own_headers["accept-encoding"] = "identity"
        if self._key is not None:
            signed = b".".join((message.id.encode(), now.encode(), message.value))
            signature = base64.b64encode(hmac.digest(self._key, signed, "sha256")).decode()
            own_headers["webhook-signature"] = f"v1,{signature}"
        return {name: value for name, value in given.items() if name.lower() not in HOP_BY_HOP} | own_headers


# Headers of the connection, which a publisher's headers must not replace.
HOP_BY_HOP: Final = frozenset(
    {
        "accept-encoding", "connection", "content-encoding", "content-length", "expect", "host", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip


def _decode_key(secret: str) -> bytes:
    """Decode the signing key of a webhook from its secret. Raise SettingsError if the secret is malformed."""
    # The secret is `whsec_` and the base64 of 24 to 64 bytes.
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not 24 <= len(key) <= 64:
        raise SettingsError("the secret of a webhook must be whsec_ and the base64 of 24 to 64 bytes")
    return key


async def _read_beginning(answer: Any) -> bytes:
    """Read up to `MAX_BODY` bytes of a response body, without decompressing it."""
    # 400 kB may decompress to 400 MB. A shorter body is read to its end, so that its connection can be used again.
    read = bytearray()
    async for piece in answer.aiter_raw():
        read += piece
        if len(read) >= MAX_BODY:
            break
    return bytes(read)


def _result_of(answer: Any, body: bytes) -> Result:
    """Convert a webhook's HTTP response into None for success, or into an error that is retried or final."""
    # 2xx is success. 408, 425, 429 and 5xx are tried again, after `Retry-After` if the answer has it. Other 4xx, 410
    # included, are final.
    # A redirection counts as a wrong setting.
    status = answer.status_code
    if 200 <= status < 300:
        return None
    is_plain = answer.headers.get("content-encoding", "identity").strip().lower() == "identity"
    text = body.decode(errors="replace")[:SHOWN] if is_plain else ""
    said = f"HTTP {status} {answer.reason_phrase[:SHOWN]}: {' '.join(text.split())}".rstrip(": ")
    if status in RETRY_STATUSES or status >= 500:
        wait = _retry_after(answer.headers.get("retry-after"))
        if wait is not None:
            return RetryAfterError(wait, said)
        return ConnectionError(said) if status in GATEWAY_STATUSES else RuntimeError(said)
    if 400 <= status < 500:
        return UnrecoverableError(said)
    return LookupError(f"{said}; redirections are not followed: give the URL that the redirection names")


def _retry_after(text: str | None) -> float | None:
    """Parse a Retry-After header, a number or a date, into seconds to wait. Return None for any other text."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return min(float(text), LONGEST)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return min(max((when - datetime.now(UTC)).total_seconds(), 0.0), LONGEST)
