"""The message that is sent of an event, to whatever broker: its payload as it is stored, and what else is known of it.

The attributes are those of CloudEvents 1.0 (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md), in
binary mode: each sink puts them where the binding of its protocol says, beside the headers that the publisher gave,
among them the W3C `traceparent` of the publish.
"""

from datetime import timedelta
from functools import lru_cache
from typing import Final

from uuid_utils import UUID

from partbox.codecs import JSON
from partbox.events import DeliveredEvent
from partbox.events.delivered import EPOCH
from partbox.events.record import (
    AGGREGATE_ID,
    AGGREGATE_TYPE,
    CONTENT_TYPE,
    EVENT_ID,
    EVENT_TYPE,
    OCCURRED_AT,
    TENANT_ID,
    microseconds,
)

SOURCE: Final = "/partbox"

ATTRIBUTES: Final = (
    "specversion",
    "id",
    "source",
    "type",
    "time",
    "aggregatetype",
    "subject",
    "partitionkey",
    "tenantid",
    "idempotencykey",
)

KEPT: Final = 1_000
"""Seconds whose text is known without being made again."""


class Message:
    """An event on its way to `topic` (a topic, routing key, subject, stream, queue or URL, as the broker says).

    `headers` are what the publisher gave. Making a message fails if those of the record cannot be read; nothing that is
    asked of it later fails. What a broker does not need is not made.
    """

    __slots__ = ("event", "headers", "idempotency_key", "source", "topic")

    def __init__(self, event: DeliveredEvent, topic: str, source: str = SOURCE) -> None:
        self.event = event
        self.topic = topic
        self.source = source
        self.headers, self.idempotency_key = event.headers_and_key()

    @property
    def id(self) -> str:
        """The event id, the same at each repetition, for the broker or the consumer to know it by."""
        return str(UUID(bytes=self.event.record[EVENT_ID]))  # a fifth of the time that the standard library takes

    @property
    def key(self) -> str | None:
        """The aggregate id; None without one."""
        return self.event.record[AGGREGATE_ID]  # type: ignore[no-any-return]

    @property
    def value(self) -> bytes:
        """The payload, byte by byte."""
        return self.event.raw

    @property
    def content_type(self) -> str:
        """The media type of the value."""
        return self.event.record[CONTENT_TYPE] or JSON

    @property
    def time(self) -> str:
        """When the event occurred, as RFC 3339."""
        second, microsecond = divmod(microseconds(self.event.record[OCCURRED_AT]), 1_000_000)
        try:
            return f"{_second(second)}.{microsecond:06}Z"
        except OverflowError:  # beyond Python's years, or infinity
            return self.event.occurred_at.isoformat()

    @property
    def attributes(self) -> dict[str, str]:
        """Those of CloudEvents by their names, without `datacontenttype`, which is `content_type`."""
        return self._with_attributes({}, "")

    def bound(self, prefix: str, content_type: str) -> dict[str, str]:
        """The publisher's headers, and all that is known under the names that a binding gives it; ours win."""
        bound = self._with_attributes(self.headers.copy(), prefix)
        bound[content_type] = self.event.record[CONTENT_TYPE] or JSON
        return bound

    def _with_attributes(self, them: dict[str, str], prefix: str) -> dict[str, str]:
        """Made once for each message, so without a loop."""
        version, id, source, type_, time, aggregate_type, subject, partition_key, tenant, once = _prefixed(prefix)
        record = self.event.record
        key, tenant_id = record[AGGREGATE_ID], record[TENANT_ID]
        them[version] = "1.0"
        them[id] = self.id
        them[source] = self.source
        them[type_] = record[EVENT_TYPE]
        them[time] = self.time
        them[aggregate_type] = record[AGGREGATE_TYPE]
        if key is not None:
            them[subject] = them[partition_key] = key
        if tenant_id is not None:
            them[tenant] = tenant_id
        if self.idempotency_key is not None:
            them[once] = self.idempotency_key
        return them


@lru_cache
def _prefixed(prefix: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in ATTRIBUTES)


@lru_cache(KEPT)
def _second(since: int) -> str:
    """A second as text, without a time zone; `since` 2000. Events that are sent together are mostly of the same few."""
    return (EPOCH + timedelta(0, since)).replace(tzinfo=None).isoformat()
