"""Change data capture: configuration for Debezium, which reads the log from the WAL in the place of workers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5
from string import Formatter
from typing import Any, Final

from partbox.errors import SettingsError

# A placeholder that Kafka Connect replaces by a variable of its worker's environment.
CONNECT_PASSWORD: Final = "${env:DEBEZIUM_PASSWORD}"  # noqa: S105  the name of a variable

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def connect(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON document that creates a Debezium connector in Kafka Connect, by a POST to /connectors."""
    return {"name": name, "config": {**options, "database.password": CONNECT_PASSWORD}}


def properties(name: str, options: Mapping[str, str]) -> str:
    """Return the options of a Debezium connector as a Java properties file, for Debezium's embedded engine."""
    lines = [f"{key}={_escape_value(value)}" for key, value in {"name": name, **options}.items()]
    return "\n".join(lines) + "\n"


def _escape_value(value: str) -> str:
    """Escape a value for a Java properties file in ASCII."""
    # A leading blank is escaped, which would be dropped otherwise.
    text = "".join(_ESCAPES.get(each) or _escape_character(each) for each in value)
    return f"\\{text}" if text.startswith(" ") else text


def _escape_character(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


# Columns that a topic may use, which every record has.
TOPIC_FIELDS: Final = ("aggregate_type", "event_type")

_LEGAL = re.compile(r"[A-Za-z0-9._-]*")
_THERE = " and ".join(f"{{{field}}}" for field in TOPIC_FIELDS)


class TopicRoute:
    """A topic template for Debezium's event router, such as `{aggregate_type}-events`.

    A template has at most one field. SettingsError is raised for several or other fields, and for a character that
    Kafka does not allow in topics."""

    def __init__(self, template: str) -> None:
        pieces = _split_template(template)
        fields = [field for _, field in pieces if field is not None]
        for field in fields:
            if field not in TOPIC_FIELDS:
                raise SettingsError(f"topic {template!r} names {{{field}}}: the fields are {_THERE}")
        if len(fields) > 1:
            raise SettingsError(f"topic {template!r} names {len(fields)} fields: Debezium's router takes one")
        if not template or not all(_LEGAL.fullmatch(text) for text, _ in pieces):
            raise SettingsError(
                f"topic {template!r} must consist of letters a to z, digits, '.', '_', '-' and one {{field}}"
            )
        self._field = fields[0] if fields else TOPIC_FIELDS[0]
        self._replacement = "".join(f"{text}${{routedByValue}}" if field else text for text, field in pieces)

    def options(self) -> dict[str, str]:
        """Return the options of Debezium's event router that apply this topic template."""
        return {"route.by.field": self._field, "route.topic.replacement": self._replacement}


def _split_template(template: str) -> list[tuple[str, str | None]]:
    """Split a topic template into pairs of a literal text and the field in braces after it."""
    # A field is as written in the braces.
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise SettingsError(
            f"topic {template!r}: {error}: write one field in braces, such as {TOPIC_FIELDS[0]}"
        ) from None
    return [(text, None if name is None else _format_field(name, spec, how)) for text, name, spec, how in parsed]


def _format_field(name: str, spec: str | None, conversion: str | None) -> str:
    return name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")


# Headers of a message beside `id`, and the columns of `record` with their values.
HEADERS: Final = {
    "eventType": "event_type",
    "aggregateType": "aggregate_type",
    "tenantId": "tenant_id",
    "contentType": "content_type",
    "headers": "headers",
    "occurredAt": "occurred_at",
    "availableAt": "available_at",
}
# Fields that the router needs, and the columns with their values.
FIELDS: Final = {"id": "event_id", "key": "aggregate_id", "type": "event_type", "payload": "payload"}
HEARTBEAT: Final = 30_000  # milliseconds
PREFIX: Final = "partbox"  # of the messages of the statement `cdc_heartbeat`

_TEXT = "org.apache.kafka.connect.storage.StringConverter"
_NAME = re.compile(r"[a-z0-9_]{1,63}")
_SCHEMA = re.compile(r"[A-Za-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The TCP address at which a Debezium connector reaches the PostgreSQL database."""

    host: str
    port: int
    database: str
    sslmode: str | None = None


@dataclass(frozen=True, slots=True)
class Connector:
    """The configuration of a Debezium connector that reads one outbox.

    `name` is also its slot's and publication's name. `whole` makes it send the log's present content at its first
    start. It executes the statements `snapshot` and `heartbeat`. Raise SettingsError for a name, role or schema that
    PostgreSQL or Debezium would refuse."""

    name: str
    schema: str
    role: str
    address: ServerAddress
    route: TopicRoute
    whole: bool
    snapshot: str
    heartbeat: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError(
                f"name {self.name!r} must have 1 to 63 letters a to z, digits and '_', as replication slots are named"
            )
        if not 1 <= len(self.role.encode(errors="replace")) <= 63 or "$" in self.role or not self.role.isprintable():
            raise SettingsError(f"role {self.role!r} must be 1 to 63 bytes of visible characters, none of them $")
        if not _SCHEMA.fullmatch(self.schema):
            raise SettingsError(
                f"schema {self.schema!r} has characters that Debezium's lists of tables do not take: use "
                "letters a to z, digits, '_' and '-'"
            )

    def options(self) -> dict[str, str]:
        """Return the options that configure the Debezium connector, except the password."""
        # The publication is created beforehand (`sql/cdc/debezium.sql`). A publication made by Debezium would include
        # deletes, and would publish the segments of the log under their own names. Keys, values and headers are already
        # texts and are sent unchanged. The default converter of a Connect worker may be that for JSON, which would turn
        # a payload into a text in quotes. The first snapshot is read in the order of the log. By default, rows of a
        # table come in no order. A heartbeat writes a message of a few bytes into the WAL, which is not forwarded. A
        # slot advances only with events that the connector gets. Without the heartbeat, the WAL of other tables would
        # be kept for ever while nothing is published.
        columns = dict.fromkeys([*FIELDS.values(), *HEADERS.values()])
        ssl = {} if self.address.sslmode is None else {"database.sslmode": self.address.sslmode}
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": self.address.host,
            "database.port": str(self.address.port),
            "database.user": self.role,
            "database.dbname": self.address.database,
            **ssl,
            "topic.prefix": self.name,
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "disabled",
            "table.include.list": rf"{self.schema}\.record",
            "column.include.list": rf"{self.schema}\.record\.({'|'.join(columns)})",
            "extended.headers.enabled": "false",
            "key.converter": _TEXT,
            "value.converter": _TEXT,
            "header.converter": _TEXT,
            **self._build_snapshot_options(),
            "heartbeat.interval.ms": str(HEARTBEAT),
            "heartbeat.action.query": self.heartbeat,
            "message.prefix.exclude.list": PREFIX,
            "transforms": "outbox",
            **{f"transforms.outbox.{name}": value for name, value in self._build_router_options().items()},
        }

    def _build_snapshot_options(self) -> dict[str, str]:
        if not self.whole:
            return {"snapshot.mode": "no_data"}
        overrides, table = "snapshot.select.statement.overrides", f"{self.schema}.record"
        return {"snapshot.mode": "initial", overrides: table, f"{overrides}.{table}": self.snapshot}

    def _build_router_options(self) -> dict[str, str]:
        headers = ",".join(f"{column}:header:{header}" for header, column in HEADERS.items())
        return {
            "type": "io.debezium.transforms.outbox.EventRouter",
            **{f"table.field.event.{field}": column for field, column in FIELDS.items()},
            "table.fields.additional.placement": headers,
            **self.route.options(),
        }


def default_name(database: str, schema: str) -> str:
    """Return the default name of a Debezium connector from database and schema. A long name ends with a hash."""
    # Slot names are unique in a server. With the hash, two names with the same beginning stay different.
    name = re.sub(r"[^a-z0-9_]", "_", f"{database}_{schema}".lower())
    if len(name) <= 63:
        return name
    return f"{name[:54]}_{md5(f'{database}.{schema}'.encode(), usedforsecurity=False).hexdigest()[:8]}"


__all__ = ["CONNECT_PASSWORD", "Connector", "ServerAddress", "TopicRoute", "connect", "default_name", "properties"]
