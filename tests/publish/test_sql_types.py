"""`partbox.publish` in SQL takes its payload and headers in all combinations of types, through every driver."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Json, Jsonb
from reading import delivered
from roles import cast_of

from partbox.db.schema.migrate import migrations
from partbox.db.sql import compose_text

DOCUMENT = """'{"n": "a"}'"""
CASTS = ("", "::json", "::jsonb", "::text", "::varchar(20)", "::doc")
VALUES = [*(DOCUMENT + cast for cast in CASTS), *("null" + cast for cast in CASTS)]
FORMS = [
    "publish('T', {payload}{named})",
    "publish(event_type => 'T', payload => {payload}{named})",
    "publish('T'::varchar, {payload}, 'Order', '7'{named})",
    "publish('T', {payload}, 'Order'::varchar, 7::text, null{placed})",
    "publish('T', {payload}, deliver_after => '1 s'{named})",
    "publish('T', {payload}, idempotency_key => gen_random_uuid()::text{named})",
]
TYPES = ("", "::json", "::jsonb", "::text")


@pytest.fixture
def publisher(dsn: str) -> Iterator[str]:
    with cast_of(dsn) as cast:
        yield cast.of("publisher")


def test_payload_and_headers_are_taken_in_every_combination_of_types(conn: psycopg.Connection[Any]) -> None:
    conn.execute("create domain doc as jsonb")
    expected: list[Any] = []
    with conn.pipeline():
        for payload, headers, form in product(VALUES, [*VALUES, None], FORMS):
            named, placed = ("", "") if headers is None else (f", headers => {headers}", f", {headers}")
            conn.execute(f"select partbox.{form.format(payload=payload, named=named, placed=placed)}".encode())
            expected.append(
                (
                    {"n": "a"} if payload.startswith(DOCUMENT) else None,
                    {"n": "a"} if headers and headers.startswith(DOCUMENT) else {},
                )
            )
    assert [(event.payload, dict(event.headers)) for event in delivered(conn)] == expected


def test_headers_of_a_type_that_is_no_json_are_refused(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="headers must be a JSON object of texts, not number"
    ):
        conn.execute("select partbox.publish('T', '{}', headers => 7)")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="type json"):
        conn.execute("select partbox.publish('T', '{}', headers => array['a'])")


def test_a_trigger_takes_its_columns_as_they_are(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "create table orders (id int, doc jsonb, raw json, note text, tags jsonb, trace json);"
        "create function told() returns trigger language plpgsql as $$ begin "
        "perform partbox.publish('A', new.doc, headers => new.trace);"
        "perform partbox.publish('B', new.raw, headers => new.tags);"
        "perform partbox.publish('C', row_to_json(new), headers => jsonb_build_object('n', new.note));"
        "perform partbox.publish('D', to_jsonb(new), 'Order', new.id::text, null, json_build_object('n', new.note));"
        "return new; end $$;"
        "create trigger told after insert on orders for each row execute function told()"
    )
    conn.execute("""insert into orders values (7, '{"n": 1}', '[1]', 'x', '{"t": "u"}', '{"v": "w"}')""")
    assert [(event.event_type, dict(event.headers)) for event in delivered(conn)] == [
        ("A", {"v": "w"}), ("B", {"t": "u"}), ("C", {"n": "x"}), ("D", {"n": "x"}),
    ]  # fmt: skip


def by_psycopg(dsn: str, payload: str | None, headers: str | None) -> None:
    with psycopg.connect(dsn) as conn:
        for one, two in product(TYPES, repeat=2):
            conn.execute(f"select partbox.publish('T', %s{one}, headers => %s{two})".encode(), [payload, headers])
        for wrap, cover in product((Json, Jsonb), repeat=2):
            values = [None if payload is None else wrap({"n": 1}), None if headers is None else cover({"a": "b"})]
            conn.execute("select partbox.publish('T', %s, 'Order', '7', null, %s)", values)


def by_psycopg2(dsn: str, payload: str | None, headers: str | None) -> None:
    conn = psycopg2.connect(dsn)
    with conn, conn.cursor() as cursor:
        for one, two in product(TYPES, repeat=2):
            cursor.execute(f"select partbox.publish('T', %s{one}, headers => %s{two})", [payload, headers])
    conn.close()


def by_asyncpg(dsn: str, payload: str | None, headers: str | None) -> None:
    async def run() -> None:
        known = conninfo_to_dict(dsn)
        names = {"host": "host", "port": "port", "user": "user", "database": "dbname"}
        conn = await asyncpg.connect(**{name: known[key] for name, key in names.items()})
        for one, two in product(TYPES, repeat=2):
            await conn.fetch(f"select partbox.publish('T', $1{one}, headers => $2{two})", payload, headers)
        await conn.close()

    asyncio.run(run())


@pytest.mark.parametrize("publish", [by_psycopg, by_psycopg2, by_asyncpg])
def test_a_publisher_gives_parameters_of_any_type_through_its_driver(
    publisher: str, conn: psycopg.Connection[Any], publish: Callable[[str, str | None, str | None], None]
) -> None:
    for payload, headers in product(('{"n": 1}', None), ('{"a": "b"}', None)):
        publish(publisher, payload, headers)
        found = {(str(event.payload), str(dict(event.headers))) for event in delivered(conn)}
        assert found == {(str({"n": 1} if payload else None), str({"a": "b"} if headers else {}))}
        conn.execute("truncate partbox.record")


def test_a_migration_takes_away_the_functions_that_took_headers_of_one_type(
    conn: psycopg.Connection[Any],
) -> None:
    """Beside them a call that leaves the headers out would be ambiguous."""
    for kind in ("json", "jsonb", "text"):
        conn.execute(
            f"create function partbox.publish(event_type text, payload {kind}, aggregate_type text default 'A',"
            f" aggregate_id text default null, tenant_id text default null, headers {kind} default null,"
            " available_at timestamptz default null, deliver_after interval default null,"
            " idempotency_key text default null) returns uuid language sql as 'select null::uuid'".encode()
        )
    (migration,) = (each for each in migrations() if each.name == "0018_headers_of_any_type")
    conn.execute(compose_text(migration.text, "partbox"))
    for payload in VALUES[:4]:
        conn.execute(f"select partbox.publish('T', {payload})".encode())
    assert len(delivered(conn)) == 4


@pytest.mark.parametrize("kind", ["jsonb", "text"])
def test_a_payload_of_another_type_costs_no_additional_function_call(conn: psycopg.Connection[Any], kind: str) -> None:
    plan = conn.execute(
        f"explain verbose select partbox.publish('T', c::{kind}, headers => c) from (values ('{{}}')) v (c)".encode()
    )
    assert "::json, '__GLOBAL__'" in str(plan.fetchall())
