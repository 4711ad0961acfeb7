"""Payloads, headers, keys and names at their limits, and one beyond; large ones over a slow line."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from line import Line
from variants import named

from partbox import Event
from partbox.errors import PublishError

VALUES = pytest.mark.every_version("what the server takes as a value, how long, deep and large")

MOST = 20_000  # of a payload, here
HEADERS, KEY = 65_536, 255


@pytest.fixture
def seen():
    return []


@pytest.fixture
def heard(open_house, seen):
    """A house where the handler of `Limit` keeps what it gets."""
    house = open_house(max_payload=MOST)
    house.outbox.on("*")(lambda event: seen.append(event))
    return house


def limit(**fields):
    return Event(**{"event_type": "Limit", "payload": 1, "aggregate_type": "Guest"} | fields)


def json_of(size):
    return "x" * (size - 2)


LONG_AGO = datetime(2, 1, 1, tzinfo=UTC)
WITHIN = {
    "the largest payload": (lambda: limit(payload=json_of(MOST)), lambda got: len(got.payload) == MOST - 2),
    "the largest bytes": (lambda: limit(payload=b"\0" * MOST), lambda got: got.payload == b"\0" * MOST),
    "the largest headers": (
        lambda: limit(headers={"h": "v" * (HEADERS - 1)}),
        lambda got: len(got.headers["h"]) > 65_000,
    ),
    "many headers": (
        lambda: limit(headers={f"{n:04}": "v" * 12 for n in range(4_000)}),
        lambda got: len(got.headers) == 4_000,
    ),
    "the longest key": (lambda: limit(idempotency_key="k" * KEY), lambda got: got.idempotency_key == "k" * KEY),
    "the longest key of wide characters": (
        lambda: limit(idempotency_key="\U0001f4a9" * KEY),
        lambda got: len(got.idempotency_key) == KEY,
    ),
    "a long id": (lambda: limit(aggregate_id="i" * 5_000), lambda got: got.aggregate_id == "i" * 5_000),
    "a long wide id": (lambda: limit(aggregate_id="\U0001f4a9" * 2_048), lambda got: len(got.aggregate_id) == 2_048),
    "an id of a space": (lambda: limit(aggregate_id=" "), lambda got: got.aggregate_id == " "),
    "an empty id": (lambda: limit(aggregate_id=""), lambda got: got.aggregate_id == ""),
    "a long type": (lambda: limit(event_type="t" * 255), lambda got: got.event_type == "t" * 255),
    "a long aggregate type": (lambda: limit(aggregate_type="t" * 255), lambda got: len(got.aggregate_type) == 255),
    "a long tenant": (lambda: limit(tenant_id="t" * 8_192), lambda got: len(got.tenant_id) == 8_192),
    "deep JSON": (lambda: limit(payload=json.loads("[" * 250 + "]" * 250)), lambda got: got.raw.count(b"[") == 250),
    "double keys": (
        lambda: limit(payload=b'{"a":1,"a":2}', content_type="application/json"),
        lambda got: got.payload == {"a": 2},
    ),
    "the largest number": (lambda: limit(payload=2**64 - 1), lambda got: got.payload == 2**64 - 1),
    "the least number": (lambda: limit(payload=-(2**63)), lambda got: got.payload == -(2**63)),
    "a number of SQL's": (
        lambda: limit(payload=b"1" + b"0" * 300 + b".0", content_type="application/json"),
        lambda got: got.payload == 1e300,
    ),
    "null": (lambda: limit(payload=None), lambda got: got.payload is None),
    "an empty text": (lambda: limit(payload=""), lambda got: got.payload == ""),
    "no bytes": (lambda: limit(payload=b""), lambda got: got.payload == b""),
    "escapes": (
        lambda: limit(payload="\\u0000 \x1b \u202e \ufeff"),
        lambda got: got.payload == "\\u0000 \x1b \u202e \ufeff",
    ),
    "long ago": (lambda: limit(occurred_at=datetime.min.replace(tzinfo=UTC)), lambda got: got.occurred_at.year == 1),
    "far off": (lambda: limit(occurred_at=datetime.max.replace(tzinfo=UTC)), lambda got: got.occurred_at.year == 9999),
    "due long ago": (lambda: limit(occurred_at=LONG_AGO, available_at=LONG_AGO), lambda got: got.payload == 1),
}


@VALUES
def test_every_payload_within_the_limits_arrives_unchanged(heard, seen):
    heard.publish([event() for event, _ in WITHIN.values()])
    with heard.working() as worker:
        heard.round()
        heard.settle(worker, until=lambda: len(seen) == len(WITHIN))
        heard.look()
    heard.judge()
    for (name, (_, as_it_was)), got in zip(WITHIN.items(), sorted(seen, key=lambda event: event.id), strict=True):
        assert as_it_was(got), name


BEYOND = {
    "a payload": lambda: limit(payload=json_of(MOST + 1)),
    "bytes": lambda: limit(payload=b"\0" * (MOST + 1)),
    "headers": lambda: limit(headers={"h": "v" * HEADERS}),
    "a key": lambda: limit(idempotency_key="k" * (KEY + 1)),
    "no key": lambda: limit(idempotency_key=""),
    "a number": lambda: limit(payload=2**64),
    "no number": lambda: limit(payload=float("nan")),
    "endless": lambda: limit(payload=float("inf")),
    "NUL": lambda: limit(payload="a\0b"),
    "NUL inside": lambda: limit(payload={"a": ["\0"]}),
    "NUL as a key": lambda: limit(payload={"\0": 1}),
    "a number in ready JSON": lambda: limit(payload=b"[1" + b"0" * 300 + b"]", content_type="application/json"),
    "NUL in ready JSON": lambda: limit(payload=b'"\\u0000"', content_type="application/json"),
    "no JSON": lambda: limit(payload=b'{"a":', content_type="application/json"),
    "a lone surrogate": lambda: limit(payload="\ud800"),
    "deep": lambda: limit(payload=_nested(100_000)),
    "round": lambda: limit(payload=_round()),
    "a delay": lambda: limit(deliver_after=timedelta(days=36_501)),
    "no delay": lambda: limit(deliver_after=0),
    "two times": lambda: limit(deliver_after=1, available_at=datetime.now(UTC)),
    "no type": lambda: limit(event_type=""),
    "no aggregate type": lambda: limit(aggregate_type=""),
}


def _nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


def _round():
    made = []
    made.append(made)
    return made


@VALUES
def test_a_payload_beyond_a_limit_is_refused_before_anything_is_sent(heard):
    for name, event in BEYOND.items():
        with named(name):
            with heard.conn.transaction():
                with pytest.raises((PublishError, RecursionError)):
                    heard.outbox.publish(heard.conn, event())
                assert heard.conn.execute("select 1").fetchone() == (1,)
            assert heard.conn.execute("select count(*) from partbox.record").fetchone() == (0,)


INSERT = """
insert into partbox.record
       (partition, event_id, event_type, aggregate_type, aggregate_id, payload, headers, available_at)
values (7, gen_random_uuid(), %(event_type)s, 'Guest', %(aggregate_id)s, %(payload)s, %(headers)s, %(due)s)
returning event_id
"""
BY_SQL = {
    "deep JSON": {"payload": "[" * 3_000 + "]" * 3_000},
    "a huge number": {"payload": "1" + "0" * 5_000},
    "a lone surrogate": {"payload": '"\\ud800"'},
    "NUL": {"payload": '"\\u0000"'},
    "double keys": {"payload": '{"a":1,"a":2}'},
    "many spaces": {"payload": " " * 10_000 + "1"},
    "no payload": {"payload": None},
    "headers that are no object": {"headers": "[1]"},
    "headers of numbers": {"headers": '{"a": 1, "b": {"c": null}}'},
    "headers of ours": {"headers": '{"partbox-raw": "1", "partbox": "x"}'},
    "a long id": {"aggregate_id": "i" * 100_000},
    "an empty type": {"event_type": ""},
    "due long ago": {"due": "4713-01-01 BC"},
}


@VALUES
def test_a_record_inserted_by_sql_may_hold_anything_and_harms_only_itself(house):
    def ask(event):
        assert event.payload is not event.headers

    house.outbox.on("*", max_attempts=1)(ask)
    usual = {"event_type": "Odd", "payload": "1", "headers": None, "due": None}
    names = {
        house.conn.execute(INSERT, usual | {"aggregate_id": name} | odd).fetchone()[0]: name
        for name, odd in BY_SQL.items()
    }
    house.live()
    asked = "select event_id, status from partbox.record_status where event_id = any(%s)"
    status = {names[event]: status for event, status in house.conn.execute(asked, [list(names)])}
    assert {name: status.get(name) for name in BY_SQL if status.get(name) not in ("done", "dead")} == {}


def test_large_payloads_over_a_slow_network_all_arrive_beside_small_ones(open_house, dsn):
    line = Line(dsn, rate=10_000_000)
    house = open_house(source=lambda: line.dsn, lease=2, heartbeat=0.3)
    sizes = []
    house.outbox.on("Large")(lambda event: sizes.append(len(event.payload)))
    large = [Event("Large", "x" * 1_000_000, aggregate_type="Guest", aggregate_id=f"{n % 7}") for n in range(30)]
    house.publish(large)
    try:
        with house.working() as worker:
            house.round()
            house.settle(worker, 40, lambda: len(sizes) == len(large))
            house.look()
        house.judge()
    finally:
        line.close()
    assert sizes == [1_000_000] * len(large)
