"""What an import makes of the columns of a table: payloads, headers, times, ids, keys."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from partbox import Outbox
from partbox.embedded.server import Server
from partbox.errors import PartboxError
from partbox.imports import ImportResult


class Source:
    """A table `old` with an id, a type, and the columns of a test."""

    def __init__(self, dsn: str, conn: psycopg.Connection[Any], drain: Callable[[Outbox], list[Any]]) -> None:
        self.outbox = Outbox(dsn, max_payload=1_000)
        self.conn = conn
        self._drain = drain

    def make(self, columns: str, *rows: tuple[Any, ...]) -> None:
        self.conn.execute(f"create table old (id integer primary key, {columns})".encode())
        for number, row in enumerate(rows, 1):
            values = ", ".join(["%s"] * (len(row) + 1))
            self.conn.execute(f"insert into old values ({values})".encode(), (number, *row))

    def take(self, columns: dict[str, str], constants: dict[str, str] | None = None, **more: Any) -> ImportResult:
        named = {"event_type": "Placed", **(constants or {})} if "event_type" not in columns else constants
        return self.outbox.import_from("old", columns, named, **more)

    def events(self) -> list[Any]:
        """What handlers get, in the order of the log."""
        seen: list[Any] = []
        self.outbox.on("*")(seen.append)
        assert self._drain(self.outbox)
        return sorted(seen, key=lambda event: event.id)


@pytest.fixture
def source(dsn: str, conn: psycopg.Connection[Any], drain: Callable[[Outbox], list[Any]]) -> Source:
    return Source(dsn, conn, drain)


@pytest.mark.parametrize(
    ("kind", "value", "constants", "payload", "content_type"),
    [
        ("text", '{"a": [1, "ü"]}', {}, {"a": [1, "ü"]}, None),
        ("varchar(100)", "12", {}, 12, None),
        ("json", '{"b":1, "a":2}', {}, {"b": 1, "a": 2}, None),
        ("jsonb", "null", {}, None, None),
        ("jsonb", None, {}, None, None),
        ("integer", 5, {}, 5, None),
        ("integer[]", [1, 2], {}, [1, 2], None),
        ("bytea", b"\0\xff", {}, b"\0\xff", "application/octet-stream"),
        ("bytea", b'{"a":1}', {"content_type": "application/json"}, {"a": 1}, None),
        ("bytea", b"\x01avro", {"content_type": "application/avro"}, b"\x01avro", "application/avro"),
        ("text", "<a/>", {"content_type": "text/xml"}, b"<a/>", "text/xml"),
        ("text", None, {"content_type": "text/xml"}, None, None),
        ("jsonb", "[1]", {"content_type": "text/xml"}, [1], None),
    ],
)
def test_imported_payloads_keep_their_type_and_value(
    source: Source, kind: str, value: Any, constants: dict[str, str], payload: Any, content_type: str | None
) -> None:
    source.make(f"body {kind}", (value,))
    assert source.take({"payload": "body"}, constants).has_imported_all
    (event,) = source.events()
    assert (event.payload, event.content_type) == (payload, content_type)


def test_the_whole_row_can_be_the_payload(source: Source) -> None:
    source.make("kind text, n integer", ("Placed", 7))
    source.take({"event_type": "kind", "payload": "*", "aggregate_id": "n"})
    (event,) = source.events()
    assert event.payload == {"id": 1, "kind": "Placed", "n": 7}
    assert (event.event_type, event.aggregate_id) == ("Placed", "7")


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        (
            "body text",
            ("{no json",),
            "the payload of .Placed. cannot be written as application/json: .* --set content_type=text/pl",
        ),
        ("body text", ("",), "the payload of .Placed. cannot be written as application/json"),
        ("body text", ('"' + "x" * 1_000 + '"',), "has 1002 bytes, above max_payload = 1000: store it elsewhere"),
        ("body json", ('"\\u0000"',), "a NUL character"),
        ("body json, headers text", ("1", "{no"), "its headers are not JSON"),
        ("body json, headers jsonb", ("1", "[]"), "its headers are a JSON list, not an object"),
        ("body json, headers jsonb", ("1", '{"partbox-raw": "x"}'), "'partbox-raw' begins with 'partbox-'"),
        (
            "body json, event_id text",
            ("1", "17"),
            "its event_id '17' is not a UUID: leave event_id unmapped, and the event gets one",
        ),
        ("body json, event_type text", ("1", None), "its event_type is NULL: map another column"),
        ("body json, event_type text", ("1", ""), "event_type is empty: name it"),
    ],
)
def test_a_row_that_cannot_be_a_record_says_why(source: Source, columns: str, row: tuple[Any, ...], said: str) -> None:
    source.make(columns, row)
    names = [part.split()[0] for part in columns.split(", ")]
    plan = {"payload" if name == "body" else name: name for name in names}
    with pytest.raises(PartboxError, match=f"row 1 of public.old cannot be imported: .*{said}"):
        source.take(plan)
    left = source.take(plan, skip_bad=True)
    assert (left.imported, left.bad, left.listed[0].key, left.has_imported_all) == (0, 1, "1", False)


def test_headers_are_texts_and_ids_and_times_are_kept(source: Source) -> None:
    source.make(
        "body json, headers jsonb, event_id uuid, at timestamptz, tenant text",
        ("1", '{"a": "x", "b": 1, "c": null, "d": [true]}', "0190a1b2-0000-7000-8000-000000000001", "2026-01-01Z", "t"),
        ("2", None, None, None, None),
        ("3", "null", None, "infinity", None),
        ("4", "{}", None, "-infinity", None),
    )
    fields = {"payload": "body", "headers": "headers", "event_id": "event_id", "occurred_at": "at"}
    source.take({**fields, "tenant_id": "tenant"})
    first, second, far, long_ago = source.events()
    assert (first.headers, first.tenant_id) == ({"a": "x", "b": "1", "d": "[true]"}, "t")
    assert str(first.event_id) == "0190a1b2-0000-7000-8000-000000000001"
    assert first.occurred_at.isoformat() == "2026-01-01T00:00:00+00:00"
    assert (second.headers, second.aggregate_type) == ({}, "__GLOBAL__")
    assert (far.occurred_at.year, long_ago.occurred_at.year) == (9999, 1)


def test_imported_rows_that_are_due_later_wait_and_those_already_due_do_not(
    source: Source, conn: psycopg.Connection[Any]
) -> None:
    source.make(
        "body json, due timestamptz, at timestamptz", ("1", "2020-01-01Z", "2021-01-01Z"), ("2", "2999-01-01Z", None)
    )
    source.take({"payload": "body", "available_at": "due", "occurred_at": "at"})
    assert [event.payload for event in source.events()] == [1]
    assert conn.execute("select state, due_at::date::text from partbox.parked").fetchall() == [
        ("scheduled", "2999-01-01")
    ]


def test_times_without_a_zone_are_in_the_zone_of_the_session(dsn: str, source: Source) -> None:
    source.make("body json, at timestamp", ("1", "2026-01-01 12:00"))
    there = Outbox(psycopg.conninfo.make_conninfo(dsn, options="-c timezone=Asia/Tokyo -c datestyle=German"))
    there.import_from("old", {"payload": "body", "occurred_at": "at"}, {"event_type": "Placed"})
    (event,) = source.events()
    assert event.occurred_at.isoformat() == "2026-01-01T03:00:00+00:00"


def test_rows_go_in_the_order_of_the_columns_that_are_named(source: Source, conn: psycopg.Connection[Any]) -> None:
    source.make("body json, at timestamptz", ("1", "2026-01-03Z"), ("2", "2026-01-01Z"), ("3", "2026-01-02Z"))
    source.take({"payload": "body", "aggregate_id": "id"}, order=["at", "id"])
    rows = conn.execute("select payload::text from partbox.record order by id").fetchall()
    assert rows == [("2",), ("3",), ("1",)]


def test_a_key_that_does_not_rise_needs_an_order(conn: psycopg.Connection[Any], dsn: str) -> None:
    conn.execute("create table old (a uuid, b integer, body json, primary key (a, b))")
    conn.execute("insert into old select gen_random_uuid(), n, '1' from generate_series(1, 3) as n")
    plan = ("old", {"payload": "body"}, {"event_type": "Placed"})
    with pytest.raises(
        PartboxError, match=r"the key of table public.old \(a, b\) does not say which .* such as --order"
    ):
        Outbox(dsn).import_from(*plan)
    assert Outbox(dsn).import_from(*plan, order=["b"]).imported == 3
    assert Outbox(dsn).import_from(*plan, order=["b"]).imported == 0
    keys = conn.execute("select key from partbox.imported where source = 'public.old'").fetchall()
    assert all(key.startswith('"') and key.endswith((", 1", ", 2", ", 3")) for (key,) in keys)


@pytest.mark.every_version("partitioned tables and views")
def test_views_and_partitioned_tables_are_tables(conn: psycopg.Connection[Any], dsn: str) -> None:
    conn.execute("create table parts (id integer, day date, body json, primary key (id, day)) partition by range (day)")
    conn.execute("create table parts_1 partition of parts default")
    conn.execute("create view seen as select id, body::jsonb -> 'a' as a from parts")
    conn.execute("""insert into parts values (1, '2026-01-01', '{"a": 5}')""")
    outbox = Outbox(dsn)
    with psycopg.connect(dsn) as slow:
        slow.execute("insert into parts_1 values (2, '2026-01-01', '{}')")
        found = outbox.import_from("parts", {"payload": "body"}, {"event_type": "Placed"}, order=["id"], dry_run=True)
        assert ([writer.pid for writer in found.writers], found.pending) == ([slow.info.backend_pid], 1)
    seen = outbox.import_from("seen", {"payload": "a"}, {"event_type": "Seen"}, key=["id"])
    assert (seen.imported, seen.source) == (2, "public.seen")


def test_a_prepared_transaction_counts_as_a_writer(conn: psycopg.Connection[Any], dsn: str, server: Server) -> None:
    (most,) = conn.execute("select current_setting('max_prepared_transactions')::int").fetchone() or (0,)
    if not most:
        pytest.skip("prepared transactions are off on this server")
    conn.execute("create table old (id integer primary key, body json)")
    with psycopg.connect(dsn) as slow:
        slow.execute("insert into old values (1, '{}')")
        slow.execute("prepare transaction 'slow'")
    found = Outbox(dsn).import_from("old", {"payload": "body"}, {"event_type": "Placed"})
    assert [writer.pid for writer in found.writers] == [None]
    conn.execute("commit prepared 'slow'")


def test_dead_rows_are_dead_for_each_subscription_that_wants_their_type(source: Source) -> None:
    source.outbox.subscriptions.create("audit")
    source.outbox.subscriptions.create("others", types=["Other"])
    source.make(
        "body json, state text, error text, tries bigint", ("1", "bad", "x" * 9_000, 2**31 - 1), ("2", "bad", None, -1)
    )
    fields = {"payload": "body", "error": "error", "attempts": "tries"}
    done = source.take(fields, status="state", pending=["new"], failed=["bad"])
    assert (done.pending, done.dead, done.has_imported_all) == (0, 2, True)
    for subscription, number in (("default", 2), ("audit", 2), ("others", 0)):
        assert source.outbox.dead.count(subscription=subscription) == number
    first, second = source.outbox.dead.list()
    assert (len(first.error or ""), first.attempts) == (4_000, 2**31 - 1)
    assert (second.error, second.attempts, second.blocks) == ("the event had failed before it was imported", 0, False)
