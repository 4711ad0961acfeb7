"""Names and ids of odd text, and what is no text at all."""

from contextlib import suppress
from itertools import product

import psycopg
from deeds import Text, fails, first_time
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from variants import named

from partbox import Event
from partbox.errors import PublishError

NAMES = {
    "quotes": 'a "quoted" \\ name',
    "lines": "a name\nof two lines\r\n# TYPE x counter",
    "directions": "\u202eeman",
    "a terminal's words": "\x1b[31mred\x07",
    "long": "x" * 255,
    "nothing to see": "\u200b\ufeff",
    "far away": "\U0001f4a9" * 100,
    "braces": '{handler="x"} 1 %s %(x)s {0}',
}


def test_names_and_ids_of_odd_text_are_delivered_and_counted(open_house, caplog):
    registry = CollectorRegistry()
    house = open_house(registry=registry)
    for name in NAMES.values():
        house.invite(name, first_time(fails))
    house.live()
    shown = generate_latest(registry).decode()
    assert all(line.startswith(("#", "partbox", "process", "python")) for line in shown.split("\n") if line)
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text


NO_TEXTS = {"a lone surrogate": "\ud800", "NUL": "a\0b", "no plain text": Text("x")}


FIELDS = ("event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type")


def test_a_value_that_is_not_a_text_is_refused_or_arrives(house):
    for number, (field, name) in enumerate(product(FIELDS, NO_TEXTS)):
        fields = {"event_type": "Ordinary", "aggregate_type": "Guest", "payload": number} | {field: NO_TEXTS[name]}
        with named((field, name)):
            with suppress(PublishError, ValueError), house.conn.transaction():
                house.outbox.publish(house.conn, Event(**fields))
            assert house.conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    house.live()
