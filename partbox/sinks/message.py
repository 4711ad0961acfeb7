"""What is sent of an event, to whatever broker: its payload as it is stored, and what else is known of it.

The attributes are those of CloudEvents 1.0 (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md), in
binary mode: each sink puts them where the binding of its protocol says, beside the headers that the publisher gave,
among them the W3C `traceparent` of the publish.
"""

from dataclasses import dataclass
from typing import Final

from partbox.codecs import JSON
from partbox.events import DeliveredEvent

SOURCE: Final = "/partbox"


@dataclass(frozen=True, slots=True)
class Message:
    """An event on its way to `topic` (a topic, routing key, subject, stream, queue or URL, as the broker says).

    `key` is the aggregate id, None without one; `value` the payload, byte by byte; `attributes` those of CloudEvents
    by their names, without `datacontenttype`, which is `content_type`; `headers` what the publisher gave.
    """

    event: DeliveredEvent
    topic: str
    key: str | None
    value: bytes
    content_type: str
    attributes: dict[str, str]
    headers: dict[str, str]

    @property
    def id(self) -> str:
        """The event id: the same at each repetition, for the broker or the consumer to know it by."""
        return self.attributes["id"]

    def bound(self, prefix: str, content_type: str) -> dict[str, str]:
        """The publisher's headers, and all that is known under the names that a binding gives it; ours win."""
        ours = {f"{prefix}{name}": value for name, value in self.attributes.items()}
        return {**self.headers, **ours, content_type: self.content_type}


def message_of(event: DeliveredEvent, topic: str, source: str = SOURCE) -> Message:
    """The message of an event."""
    attributes = {
        "specversion": "1.0",
        "id": str(event.event_id),
        "source": source,
        "type": event.event_type,
        "subject": event.aggregate_id,
        "time": event.occurred_at.isoformat().replace("+00:00", "Z"),
        "partitionkey": event.aggregate_id,
        "aggregatetype": event.aggregate_type,
        "tenantid": event.tenant_id,
        "idempotencykey": event.idempotency_key,
    }
    known = {name: value for name, value in attributes.items() if value is not None}
    return Message(event, topic, event.aggregate_id, event.raw, event.content_type or JSON, known, event.headers)
