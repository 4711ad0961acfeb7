"""The messages that sinks make of events, and the templates of their topics.

A message has the attributes of CloudEvents 1.0 (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md) in
binary mode. Each sink puts them where the binding of its protocol says, beside the publisher's headers."""

import base64
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from string import Formatter, ascii_letters, digits, printable
from typing import Any, Final
from urllib.parse import quote

import orjson

from partbox.codecs import JSON
from partbox.errors import SettingsError
from partbox.events import DeliveredEvent
from partbox.events.declaration import dataschema_of
from partbox.events.delivered import EPOCH
from partbox.events.record import (
    AGGREGATE_ID,
    AGGREGATE_TYPE,
    CONTENT_TYPE,
    EVENT_ID,
    EVENT_TYPE,
    OCCURRED_AT,
    TENANT_ID,
    parse_microseconds,
)

SOURCE: Final = "/partbox"

DEFAULT: Final = "{aggregate_type}-events"
FIELDS: Final = ("aggregate_type", "event_type", "tenant_id")

# CloudEvents attributes and extensions, in the order that `_build_header_template` unpacks.
ATTRIBUTES: Final = (
    "specversion", "id", "source", "type", "time", "aggregatetype", "subject", "partitionkey", "tenantid",
    "idempotencykey", "dataschema",
)  # fmt: skip

# Entries of each cache: topics, header templates, texts of seconds.
KEPT: Final = 1_000

# Characters that some broker may refuse.
_ILLEGAL = re.compile(r"[^a-z0-9._-]")


class Topic:
    """A template for the topics of events, with event fields in braces, such as `{tenant_id}`.

    A wrong template raises SettingsError. Values are lower-cased, and characters that a broker may refuse become `-`:
    `{aggregate_type}-events` gives `order-events` for the aggregate type `Order`. `fixed` is the topic if it is the
    same for all events, else None."""

    def __init__(self, template: str) -> None:
        try:
            named = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise SettingsError(f"topic {template!r}: {error}; write a literal brace twice") from None
        for name in named:
            if name not in FIELDS:
                fields = ", ".join(f"{{{field}}}" for field in FIELDS)
                raise SettingsError(f"topic {template!r} names {{{name}}}: there are {fields}")
        if not template:
            raise SettingsError(f"topic '' is empty: name one, such as {DEFAULT}")
        self.template = template
        self.fixed = None if named else template.format()

    def of(self, event: DeliveredEvent) -> str:
        record = event.record
        return _format_topic(self.template, record[AGGREGATE_TYPE], record[EVENT_TYPE], record[TENANT_ID])

    def address(self, aggregate_type: str, event_type: str) -> str:
        """Return the topic of all events of an aggregate type and event type, for all tenants. `{tenant_id}` stays as
        it is."""
        legal = {"aggregate_type": _escape_part(aggregate_type), "event_type": _escape_part(event_type)}
        return self.template.format(**legal, tenant_id="{tenant_id}")


@lru_cache(KEPT)
def _format_topic(template: str, *values: str | None) -> str:
    legal = map(_escape_part, values)
    return template.format(**dict(zip(FIELDS, legal, strict=True)))


def _escape_part(value: str | None) -> str:
    return _ILLEGAL.sub("-", (value or "none").lower())


class Message:
    """An event in the form in which a sink sends it to a broker, with its topic, key, value and headers.

    `topic` is the broker's topic, routing key, subject, stream, queue or URL. `headers` are the publisher's. Creation
    fails if the record's headers cannot be read, and no property fails later."""

    __slots__ = ("event", "headers", "idempotency_key", "source", "topic", "version")

    def __init__(self, event: DeliveredEvent, topic: str, source: str = SOURCE) -> None:
        self.event = event
        self.topic = topic
        self.source = source
        self.headers, self.idempotency_key, self.version = event.split_headers()

    @property
    def id(self) -> str:
        """The event id, by which a broker or consumer recognises duplicates."""
        # The id is the same each time the event is sent.
        return _format_uuid(self.event.record[EVENT_ID])

    @property
    def key(self) -> str | None:
        """The aggregate id, by which a broker keeps messages in order, or None without an aggregate."""
        return self.event.record[AGGREGATE_ID]  # type: ignore[no-any-return]

    @property
    def value(self) -> bytes:
        """The payload of the event as bytes, exactly as it is stored."""
        return self.event.raw

    @property
    def content_type(self) -> str:
        """The media type of the event's payload."""
        return self.event.record[CONTENT_TYPE] or JSON

    @property
    def time(self) -> str:
        """The time of the event in RFC 3339 format."""
        second, microsecond = divmod(parse_microseconds(self.event.record[OCCURRED_AT]), 1_000_000)
        try:
            # The % operator is faster than an f-string here.
            return "%s.%06dZ" % (_format_second(second), microsecond)  # noqa: UP031
        # A year outside Python's range, or infinity.
        except OverflowError:
            return self.event.occurred_at.isoformat()

    @property
    def attributes(self) -> dict[str, str]:
        """The CloudEvents attributes of the event by name, except `datacontenttype`."""
        # The value of `datacontenttype` is `content_type`.
        return self._fill_headers("", None)

    def bound(self, prefix: str, content_type: str) -> dict[str, str]:
        """Return all headers of the message: the publisher's headers, and CloudEvents attributes with `prefix` before
        their names."""
        # The names are those of the protocol's CloudEvents binding, in which `content_type` is the header of the media
        # type. An attribute wins over a header of the same name.
        bound = self._fill_headers(prefix, content_type)
        for name, value in self.headers.items():
            if name not in bound:
                bound[name] = value
        return bound

    def _fill_headers(self, prefix: str, content_type: str | None) -> dict[str, str]:
        # The names are those of the protocol's binding. The part shared with other messages of its kind is copied from
        # a template, and its own values are filled in.
        record = self.event.record
        form, id, time, subject, partition_key, once, schema = _build_header_template(
            prefix,
            content_type,
            self.source,
            record[EVENT_TYPE],
            record[AGGREGATE_TYPE],
            record[TENANT_ID],
            record[CONTENT_TYPE],
        )
        filled = form.copy()
        filled[id] = _format_uuid(record[EVENT_ID])
        filled[time] = self.time
        key = record[AGGREGATE_ID]
        if key is not None:
            filled[subject] = filled[partition_key] = key
        if self.idempotency_key is not None:
            filled[once] = self.idempotency_key
        if self.version is not None:
            filled[schema] = dataschema_of(record[EVENT_TYPE], self.version)
        return filled


def in_json(name: str, payload: bytes, *, is_json: bool) -> dict[str, Any]:
    """Return the payload as a JSON field: under `name` if it is JSON, else as base64 under `NAME_base64`."""
    # The field is for a document of one line.
    if is_json:
        # The payload is stored verbatim, and a line break in JSON can stand only between two tokens.
        return {name: orjson.Fragment(payload.replace(b"\n", b" ").replace(b"\r", b" "))}
    return {f"{name}_base64": base64.b64encode(payload).decode()}


def _format_uuid(id: bytes) -> str:
    # This is four times as fast as the standard library.
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@lru_cache(KEPT)
def _build_header_template(
    prefix: str,
    content_type: str | None,
    source: str,
    event_type: str,
    aggregate_type: str,
    tenant_id: str | None,
    media_type: str | None,
) -> tuple[dict[str, str], str, str, str, str, str, str]:
    """Return the CloudEvents headers that messages of the same types and tenant share, and the names of the other
    headers."""
    # The headers are CloudEvents attributes. The names of the other attributes have the prefix.
    names = [prefix + name for name in ATTRIBUTES]
    version, id, named_source, type, time, aggregate, subject, partition_key, tenant, once, schema = names
    form = {version: "1.0", id: "", named_source: source, type: event_type, time: "", aggregate: aggregate_type}
    if tenant_id is not None:
        form[tenant] = tenant_id
    if content_type is not None:
        form[content_type] = media_type or JSON
    return form, id, time, subject, partition_key, once, schema


@lru_cache(KEPT)
def _format_second(since: int) -> str:
    """Convert seconds since the year 2000 into an ISO 8601 time without a time zone."""
    # Cached, because events that are sent together are mostly of the same few seconds.
    return (EPOCH + timedelta(0, since)).replace(tzinfo=None).isoformat()


_TOKEN = "!#$&'*+-.^_`|~" + ascii_letters + digits
_VALUE = "".join(each for each in printable if each not in ' "%\t\n\r\x0b\x0c')

_TOKENS = re.compile(f"[{re.escape(_TOKEN)}]*")
_VALUES = re.compile(f"[{re.escape(_VALUE)}]*")


def ascii_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return message headers percent-encoded, for protocols that take only ASCII."""
    # One check of all names and values, because nearly all headers are ASCII already.
    if _TOKENS.fullmatch("".join(headers)) and _VALUES.fullmatch("".join(headers.values())):
        return dict(headers)
    return {quote(name, safe=_TOKEN): quote(value, safe=_VALUE) for name, value in headers.items()}
