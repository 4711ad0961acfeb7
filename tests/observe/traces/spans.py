"""An outbox that is traced, and the spans that it leaves."""

from typing import Any
from uuid import UUID

import psycopg
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from partbox import Event, Outbox
from partbox.observe.tracing import Tracing
from partbox.testing.drain import Drainer
from partbox.testing.sessions import Sessions
from partbox.testing.statements import advance

CANARY = "canary-7731"
"""Words that no span may say: they are in payloads, aggregate ids and tenants."""


class ExcInfo:
    """An outbox that is traced, and the spans that ended, in their order."""

    def __init__(self, dsn: str, sessions: Sessions | None = None, tracing: Any = (), **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.outbox = Outbox(dsn, **settings)
        self.outbox.observe(Tracing(self.provider, **dict(tracing)))
        self.conn = psycopg.connect(dsn, autocommit=True)
        self._kit = Drainer(self.outbox, dsn, sessions)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if told(span).get("messaging.operation.name") == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def publish(self, *numbers: int, event_type: str = "Counted", key: str | None = None, **fields: Any) -> None:
        if key is not None:
            fields |= {"aggregate_type": "Key", "aggregate_id": key}
        events = [Event(event_type, {"n": number, "secret": CANARY}, **fields) for number in numbers]
        with self.conn.transaction():
            self.outbox.publish_many(self.conn, events)

    def place(self, payload: Any = None, event_type: str = "OrderPlaced", **fields: Any) -> UUID | None:
        """Publish one event."""
        with self.conn.transaction():
            return self.outbox.publish(self.conn, event_type, payload, **fields)

    def headers(self) -> list[dict[str, str]]:
        rows = self.conn.execute("select headers from partbox.record order by id").fetchall()
        return [headers or {} for (headers,) in rows]

    def deliver(self) -> None:
        """Deliver what is due, and what waits, until nothing does: by the parts of a worker, without its threads."""
        while self._kit.drain("default"):
            advance(self.conn, "partbox", 1)

    def close(self) -> None:
        self._kit.close()
        self.conn.close()
        self.provider.shutdown()


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def linked(span: ReadableSpan, what: str) -> list[int]:
    """The ids of the spans that it links to."""
    return [link.context.span_id for link in span.links if (link.attributes or {}).get("partbox.link") == what]


def errors(span: ReadableSpan) -> list[Any]:
    return [(event.attributes or {}).get("exception.type") for event in span.events if event.name == "exception"]
