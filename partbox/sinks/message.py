"""The message that is sent of an event, to whatever broker: its payload as it is stored, and what else is known of it.

The attributes are those of CloudEvents 1.0 (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md), in
binary mode: each sink puts them where the binding of its protocol says, beside the headers that the publisher gave,
among them the W3C `traceparent` of the publish.
"""

from functools import cache
from typing import Final, NamedTuple

import orjson
from uuid_utils import UUID

from partbox.codecs import JSON
from partbox.events import DeliveredEvent

SOURCE: Final = "/partbox"


NAMES: Final = (
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


class Message(NamedTuple):
    """An event on its way to `topic` (a topic, routing key, subject, stream, queue or URL, as the broker says).

    `id` is the event id, the same at each repetition, for the broker or the consumer to know it by; `key` the aggregate
    id, None without one; `value` the payload, byte by byte; `headers` what the publisher gave; `time` as RFC 3339.
    """

    event: DeliveredEvent
    topic: str
    id: str
    key: str | None
    value: bytes
    content_type: str
    time: str
    source: str
    headers: dict[str, str]
    idempotency_key: str | None

    @property
    def attributes(self) -> dict[str, str]:
        """Those of CloudEvents by their names, without `datacontenttype`, which is `content_type`."""
        return self._with_attributes({}, "")

    def bound(self, prefix: str, content_type: str) -> dict[str, str]:
        """The publisher's headers, and all that is known under the names that a binding gives it; ours win."""
        bound = self._with_attributes(self.headers.copy(), prefix)
        bound[content_type] = self.content_type
        return bound

    def _with_attributes(self, them: dict[str, str], prefix: str) -> dict[str, str]:
        """Made once for each message, so without a loop."""
        version, id, source, type_, time, aggregate_type, subject, partition_key, tenant, once = _prefixed(prefix)
        row = self.event._row
        them[version] = "1.0"
        them[id] = self.id
        them[source] = self.source
        them[type_] = row[3]
        them[time] = self.time
        them[aggregate_type] = row[4]
        if self.key is not None:
            them[subject] = them[partition_key] = self.key
        if row[6] is not None:
            them[tenant] = row[6]
        if self.idempotency_key is not None:
            them[once] = self.idempotency_key
        return them


@cache
def _prefixed(prefix: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in NAMES)


def message_of(event: DeliveredEvent, topic: str, source: str = SOURCE) -> Message:
    """The message of an event.

    Made for each, so by the quickest way: an id and a time as text take orjson and uuid_utils a fifth of what they take
    the standard library.
    """
    row = event._row
    headers, once = event.headers_and_key()
    id = str(UUID(bytes=row[2]))
    time = orjson.dumps(event.occurred_at, option=orjson.OPT_UTC_Z)[1:-1].decode()
    return Message(event, topic, id, row[5], event.raw, row[9] or JSON, time, source, headers, once)
