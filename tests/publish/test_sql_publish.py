"""Publishing from SQL: the same records, the same checks."""

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Json
from reading import count, delivered
from run_size import examples
from waiting import eventually

from partbox import Event, Outbox, partition_of
from partbox.codecs import Codecs
from partbox.errors import PublishError

CALL = "select partbox.publish({})"


def publish(
    conn: psycopg.Connection[Any], event_type: str | None = "T", payload: str | None = "{}", **more: Any
) -> Any:
    """Calls the function with these arguments, the rest left out."""
    arguments = {"event_type": event_type, "payload": payload} | more
    named = psycopg.sql.SQL(", ").join(
        psycopg.sql.SQL("{} => {}").format(psycopg.sql.Identifier(name), psycopg.sql.Placeholder(name))
        for name in arguments
    )
    return conn.execute(psycopg.sql.SQL(CALL).format(named), arguments).fetchall()[0][0]


def test_sql_writes_the_same_records_as_python(conn: psycopg.Connection[Any]) -> None:
    event_id = publish(
        conn, "OrderPlaced", '{ "id": 42 }', aggregate_type="Order", aggregate_id="é-42", tenant_id="t",
        headers='{"a": "b"}',
    )  # fmt: skip
    (event,) = delivered(conn)
    assert (event.event_id, event.event_id.version, event.event_id.variant) == (event_id, 7, "specified in RFC 4122")
    assert (event.event_type, event.aggregate_type, event.aggregate_id) == ("OrderPlaced", "Order", "é-42")
    assert (event.payload, event.headers, event.tenant_id) == ({"id": 42}, {"a": "b"}, "t")
    assert event.partition == partition_of("é-42")
    assert conn.execute("select payload::text from partbox.record").fetchone() == ('{ "id": 42 }',)


def test_two_arguments_are_enough_and_positions_are_those_of_the_documentation(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select partbox.publish('A', null)")
    conn.execute("select partbox.publish('B', '1', 'Order', '42', 't', '{}', null, interval '1 hour', 'key')")
    first, second = delivered(conn)
    assert (first.payload, first.aggregate_type, first.headers) == (None, "__GLOBAL__", {})
    assert first.partition == partition_of(str(first.event_id))
    assert (second.aggregate_id, second.tenant_id, second.idempotency_key) == ("42", "t", "key")


def test_names_and_ids_may_be_as_long_as_their_limits(conn: psycopg.Connection[Any]) -> None:
    publish(conn, "é" * 255, aggregate_type="x" * 255, aggregate_id="é" * 4_096, tenant_id="x" * 8_192)
    (event,) = delivered(conn)
    assert (len(event.event_type), len(event.aggregate_id or ""), len(event.tenant_id or "")) == (255, 4_096, 8_192)


def test_an_event_without_order_needs_no_aggregate_id(conn: psycopg.Connection[Any]) -> None:
    publish(conn, aggregate_type="Order")
    publish(conn, aggregate_id=None)
    assert [event.aggregate_id for event in delivered(conn)] == [None, None]


CALLS = [
    """publish('T', '{"n": 1}')""",
    """publish('T', '{"n": 1}', 'Order', '7')""",
    """publish(event_type => 'T', payload => '{"n": 1}', headers => '{}')""",
    """publish('T'::varchar, '{"n": 1}'::json, 'Order', 7::text, headers => '{}'::json)""",
    """publish('T', '{"n": 1}'::jsonb, 'Order', 7::text, null, jsonb_build_object('a', 'b'))""",
    """publish('T', jsonb_build_object('n', 1), headers => '{}')""",
    """publish('T', json_build_object('n', 1), headers => '{}')""",
    """publish('T', '{"n": 1}'::text, headers => '{}'::text)""",
    """publish('T'::varchar, '{"n": 1}'::varchar, 'Order'::varchar, '7'::varchar, 't'::varchar, '{}'::varchar)""",
    """publish('T', row_to_json(r)) from (select 1 as n) r""",
    """publish('T', to_jsonb(r)) from (select 1 as n) r""",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_payload_may_be_json_jsonb_or_text(conn: psycopg.Connection[Any], call: str) -> None:
    conn.execute(f"select partbox.{call}")
    (event,) = delivered(conn)
    assert (event.event_type, event.payload) == ("T", {"n": 1})


def test_a_trigger_publishes_its_row(conn: psycopg.Connection[Any]) -> None:
    conn.execute("create table orders (id bigint, doc jsonb, note varchar(20))")
    conn.execute(
        "create function told() returns trigger language plpgsql as $$ begin "
        "perform partbox.publish('A', to_jsonb(new), 'Order', new.id::text); "
        "perform partbox.publish('B', new.doc, 'Order', new.id::text); "
        "perform partbox.publish('C', new.note, 'Order', new.id::text); return new; end $$"
    )
    conn.execute("create trigger told after insert on orders for each row execute function told()")
    conn.execute("""insert into orders values (7, '{"n": 1}', '[1]')""")
    events = delivered(conn)
    row = {"id": 7, "doc": {"n": 1}, "note": "[1]"}
    assert [(event.event_type, event.payload, event.aggregate_id) for event in events] == [
        ("A", row, "7"), ("B", {"n": 1}, "7"), ("C", [1], "7"),
    ]  # fmt: skip


def test_a_text_that_is_no_json_is_refused(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        conn.execute("select partbox.publish('T', %s::text)", ["{"])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="an integer beyond 64 bits"):
        conn.execute("select partbox.publish('T', '18446744073709551616'::jsonb)")
    assert count(conn) == 0


def test_ids_made_in_sql_contain_the_time_at_which_they_were_made(conn: psycopg.Connection[Any]) -> None:
    ids = [publish(conn) for _ in range(50)]
    assert len(set(ids)) == 50
    for each in ids:
        said = datetime.fromtimestamp((each.int >> 80) / 1000, UTC)
        assert abs(datetime.now(UTC) - said) < timedelta(minutes=5)


def test_a_delay_counts_from_the_clock_of_the_database(conn: psycopg.Connection[Any]) -> None:
    then = datetime(2099, 1, 1, tzinfo=UTC)
    publish(conn, deliver_after=timedelta(hours=1))
    publish(conn, available_at=then)
    after, at = conn.execute("select available_at, available_at - occurred_at from partbox.record order by id")
    assert timedelta(minutes=59) < after[1] < timedelta(minutes=61)
    assert at[0] == then


def test_now_does_not_count_as_past_in_its_transaction_however_long_it_is_open(conn: psycopg.Connection[Any]) -> None:
    """`now()` is the transaction's begin, which a minute of work leaves behind."""
    with conn.transaction():
        conn.execute("select partbox.publish('T', null, available_at => now())")
        conn.execute("select partbox.publish('T', null, available_at => now() - interval '59 s')")
    assert count(conn) == 2


def test_a_used_key_gives_null_and_writes_nothing(conn: psycopg.Connection[Any]) -> None:
    event_id = publish(conn, idempotency_key="order-42", headers='{"a":"b"}')
    assert publish(conn, idempotency_key="order-42") is None
    assert publish(conn, idempotency_key="order-43") is not None
    assert conn.execute("select event_id from partbox.idempotency where key = 'order-42'").fetchone() == (event_id,)
    first, _ = delivered(conn)
    assert (first.idempotency_key, first.headers) == ("order-42", {"a": "b"})


@pytest.mark.parametrize("commits", [True, False])
def test_a_concurrent_holder_of_a_key_is_waited_for(dsn: str, conn: psycopg.Connection[Any], commits: bool) -> None:
    results: list[Any] = []
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as waiter:
        publish(holder, idempotency_key="k")
        thread = threading.Thread(target=lambda: results.append(publish(waiter, idempotency_key="k")))
        thread.start()
        eventually(lambda: _waits(conn, waiter.info.backend_pid))
        holder.commit() if commits else holder.rollback()
        thread.join()
    assert (results[0] is None, count(conn)) == (commits, 1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"event_type": ""}, "event_type is empty: name it"),
    ({"event_type": None}, "event_type is empty: name it"),
    ({"aggregate_type": ""}, "aggregate_type is empty"),
    ({"aggregate_type": None}, "aggregate_type is empty"),
    (
        {"aggregate_type": "Order", "aggregate_id": None},
        "aggregate_id is null, and aggregate_type is 'Order': give the id",
    ),
    ({"event_type": "x" * 256}, r"event_type 'x{100}\.\.\.' has 256 characters, above 255: shorten it"),
    ({"aggregate_type": "é" * 256}, r"aggregate_type 'é{100}\.\.\.' has 256 characters, above 255: shorten it"),
    ({"aggregate_id": "é" * 4_097}, r"aggregate_id 'é{100}\.\.\.' has 8194 bytes, above 8192: hash what is longer"),
    ({"tenant_id": "x" * 8_193}, r"tenant_id 'x{100}\.\.\.' has 8193 bytes, above 8192: hash what is longer"),
    ({"payload": '"' + "x" * 1_048_576 + '"'}, "the payload of 'T' has 1048578 bytes, above max_payload = 1048576"),
    ({"payload": r'["\\\u0000"]'}, "the payload holds a NUL character"),
    ({"payload": r'["\ud800x"]'}, "the payload holds a lone surrogate"),
    ({"payload": r'["\ude00"]'}, "the payload holds a lone surrogate"),
    ({"payload": "123456789012345678901234567890"}, "the payload holds an integer beyond 64 bits: give it as text"),
    ({"payload": '{"a": [1, -9223372036854775809]}'}, "the payload holds an integer beyond 64 bits"),
    ({"payload": '{"a":1,"b":18446744073709551616}'}, "the payload holds an integer beyond 64 bits"),
    ({"payload": "1" + "0" * 200_000}, "the payload holds an integer beyond 64 bits"),
    ({"payload": "1e400"}, "the payload holds a number beyond a double: give it as text"),
    ({"payload": "[0.5, -1E+400]"}, "the payload holds a number beyond a double"),
    ({"payload": "[1e-400]"}, "the payload holds a number beyond a double"),
    ({"payload": "1" + "0" * 400 + ".5"}, "the payload holds a number beyond a double"),
    ({"payload": "[" * 1025 + "]" * 1025}, "the payload is nested more than 1024 levels deep: make it flatter"),
    ({"payload": '{"a":' * 1025 + "1" + "}" * 1025}, "the payload is nested more than 1024 levels deep"),
    ({"available_at": datetime(2099, 1, 1, tzinfo=UTC), "deliver_after": timedelta(1)}, "are both given"),
    ({"available_at": "infinity"}, "available_at infinity is no moment"),
    (
        {"available_at": datetime(2020, 1, 1, tzinfo=UTC)},
        "available_at 2020-01-01 .* is past, and the event occurs now",
    ),
    ({"deliver_after": timedelta(0)}, "deliver_after must be above 0"),
    ({"deliver_after": timedelta(-1)}, "deliver_after must be above 0"),
    ({"deliver_after": timedelta(40_000)}, "at most 36500 days"),
    ({"idempotency_key": ""}, "idempotency_key must have 1 to 255 characters, not 0"),
    ({"idempotency_key": "x" * 256}, "idempotency_key must have 1 to 255 characters, not 256"),
    ({"headers": "[]"}, "headers must be a JSON object of texts, not array"),
    ({"headers": '{"n": 1}'}, "header 'n' must be a text, not a JSON number"),
    ({"headers": r'{"n": "\u0000"}'}, "a header holds a NUL character"),
    ({"headers": '{"PARTBOX-x": "1"}'}, "header 'PARTBOX-x' begins with partbox-"),
    ({"headers": Json({"n": "é" * 32_768})}, "the headers have 65537 bytes together, above 65536"),
]


def test_an_event_with_an_invalid_field_is_refused(conn: psycopg.Connection[Any]) -> None:
    for arguments, message in REFUSED:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"^partbox: .*{message}"):
            publish(conn, **arguments)
        assert count(conn) == 0, message
        assert conn.execute("select pg_sequence_last_value('partbox.record_id_seq')").fetchone() == (None,), message


FINE = [
    r'["\\u0000"]', r'["\ud83c\udf88"]', r'"\\\\ud800"', '"é"',
    "18446744073709551615", "-9223372036854775808", "1.7976931348623157e308", "5e-324", "0e999", "-0.0e-999",
    "1" + "0" * 400 + "e-400", "0." + "3" * 50_000,
    '"123456789012345678901234567890"', r'{"a\" ,1e400": " : -1e400, \" [ 123456789012345678901234567890 "}',
    "[" * 1024 + "]" * 1024, '{"[": "' + "[{" * 2_000 + '"}', "[" + "[]," * 2_000 + "{}]",
]  # fmt: skip


@pytest.mark.parametrize("payload", FINE, ids=lambda payload: payload[:30])
def test_a_payload_that_only_looks_invalid_is_accepted(conn: psycopg.Connection[Any], payload: str) -> None:
    publish(conn, payload=payload)
    assert count(conn) == 1
    with conn.transaction():
        Outbox(conn.info.dsn).publish(conn, "T", payload.encode(), content_type="application/json")
    first, second = delivered(conn)
    assert first.raw == second.raw == payload.encode()
    assert type(first.payload) is type(second.payload)  # so it can be read


DIGITS = st.from_regex(r"[1-9][0-9]{0,2}|[1-9][0-9]{16,21}", fullmatch=True)
NEAR = st.sampled_from([2**63, 2**64]).flatmap(lambda bound: st.integers(bound - 3, bound + 3))
NUMBERS = st.builds(
    lambda sign, whole, part, exponent: f"{sign}{whole}{part}{exponent}",
    st.sampled_from(["", "-"]),
    st.just("0") | DIGITS | NEAR.map(str),
    st.just("") | DIGITS.map(".{}".format),
    st.just("") | st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 420)),
)
STRINGS = st.text(st.sampled_from('1e90"\\ ,:[]{}-.é'), max_size=12).map(json.dumps) | NUMBERS.map('"{}"'.format)
DOCUMENTS = st.recursive(
    NUMBERS | STRINGS | st.sampled_from(["null", "true"]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda each: f"[{', '.join(each)}]")
        | st.dictionaries(STRINGS, inner, max_size=3).map(lambda each: f"{{{','.join(map(':'.join, each.items()))}}}")
    ),
    max_leaves=12,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=8))
def test_sql_and_python_accept_the_same_json_and_read_it_back_unchanged(
    conn: psycopg.Connection[Any], documents: list[str]
) -> None:
    found = conn.execute(
        "select partbox.publish_problem('T', document::json, 'A', '7', null, null, null, null, null) is null"
        " from unnest(%s::text[]) as document",
        [documents],
    )
    for document, (in_sql,) in zip(documents, found, strict=True):
        assert in_sql == _in_python(document), document
        if in_sql:
            assert Codecs().decode(document.encode()) == json.loads(document)


def _in_python(document: str) -> bool:
    try:
        Codecs().encode(document.encode(), "application/json")
    except PublishError:
        return False
    return True


@pytest.mark.parametrize("limit", ["64MiB", "-1", "1e6"])
def test_the_error_for_an_invalid_payload_limit_names_the_limit(conn: psycopg.Connection[Any], limit: str) -> None:
    conn.execute("select set_config('partbox.max_payload', %s, false)", [limit])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"max_payload is '{limit}': set it to a number of"):
        publish(conn)


def test_a_session_may_raise_the_payload_limit(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select set_config('partbox.max_payload', '2000000', false)")
    publish(conn, payload='"' + "x" * 1_500_000 + '"')
    assert count(conn) == 1


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(aggregate_id=st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_sql_and_python_choose_the_same_partition(conn: psycopg.Connection[Any], aggregate_id: str) -> None:
    with conn.transaction(force_rollback=True):
        publish(conn, aggregate_id=aggregate_id)
        assert conn.execute("select partition from partbox.record").fetchone() == (partition_of(aggregate_id),)


def test_an_event_from_sql_and_the_same_event_from_python_are_stored_alike(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    with conn.transaction():
        Outbox(dsn).publish(conn, Event("T", {"a": 1}, aggregate_id="x"))
        publish(conn, payload='{"a":1}', aggregate_id="x")
    rows = conn.execute(
        "select xid, partition, event_type, aggregate_type, aggregate_id, tenant_id, payload::text, payload_bytes,"
        " content_type, headers, available_at from partbox.record order by id"
    ).fetchall()
    assert rows[0] == rows[1]


def _waits(conn: psycopg.Connection[Any], pid: int) -> bool:
    found = conn.execute("select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", (pid,))
    return found.fetchone() is not None
