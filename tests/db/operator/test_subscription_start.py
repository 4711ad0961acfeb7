"""Where a subscription begins: what it gets, and what it does not."""

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random, SystemRandom

import psycopg
import pytest
from ownership import background
from psycopg import Rollback
from subscribing import PURGE, SCHEMA, gets, is_paused, open_transaction, publish, rows, waiting_for_lock
from waiting import eventually

from partbox import Outbox
from partbox.db.operator import subscriptions
from partbox.errors import PartboxError, SchemaError


def test_a_subscription_from_the_beginning_gets_all_records_in_the_log(outbox, conn):
    publish(conn, 1, 2, 3)
    outbox.subscriptions.create("audit")
    publish(conn, 4)
    assert gets(conn, "audit") == gets(conn, "default") == [1, 2, 3, 4]
    assert set(rows(conn, "audit", "snapshot::text, last_id, floor_id, owner, assignee")) == {
        ("1:1:", 0, 0, None, None)
    }
    assert len(rows(conn, "audit", "partition")) == 256


def test_a_subscription_from_now_on_gets_later_commits_even_of_transactions_already_open(dsn, outbox, conn):
    publish(conn, 1)
    with psycopg.connect(dsn) as early:
        early.execute("select pg_current_xact_id()")  # has its xid before the call, publishes after it
        with open_transaction(dsn, 2) as slow:
            publish(conn, 3)
            outbox.subscriptions.create("audit", "now")
            assert gets(conn, "audit") == []
            publish(conn, 4)
            publish(slow, 5)
        publish(early, 6)
        assert gets(conn, "audit") == [2, 4, 5]
    assert gets(conn, "audit") == [2, 4, 5, 6]


def test_a_subscription_from_now_on_created_before_the_first_publish_gets_everything(outbox, conn):
    outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "last_id, floor_id")) == {(0, 0)}
    publish(conn, 1)
    assert gets(conn, "audit") == [1]


def test_a_subscription_from_now_on_searches_no_old_records_although_no_worker_has_read_them(outbox, conn):
    publish(conn, *range(9))
    outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "floor_id, last_id")) == {(9, 9)}


def test_a_subscription_created_beside_short_transactions_waits_for_those_that_were_open(dsn, outbox, conn):
    publish(conn, *range(9))
    with background() as begin, psycopg.connect(dsn) as slow:
        slow.execute("select pg_current_xact_id()")
        created = begin(outbox.subscriptions.create, "audit", "now")
        publish(conn, 9)
        slow.rollback()
        created.result()
    ((floor, last_id),) = set(rows(conn, "audit", "floor_id, last_id"))
    assert 9 <= floor <= last_id <= 10


def test_a_subscription_begins_with_the_highest_floor_of_all_partitions_and_subscriptions(dsn, outbox, conn):
    publish(conn, *range(9))
    outbox.subscriptions.create("other")
    conn.execute("update partbox.partition set floor_id = 5 where subscription = 'default' and partition = 7")
    conn.execute("update partbox.partition set floor_id = 3 where subscription = 'other' and partition = 8")
    with psycopg.connect(dsn) as slow:
        slow.execute("select pg_current_xact_id()")
        outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "floor_id, last_id")) == {(5, 9)}


def test_the_snapshot_of_a_new_subscription_does_not_show_its_own_transaction_as_ended(outbox, conn):
    conn.execute("select pg_current_xact_id()")
    outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "pg_visible_in_snapshot(xmin::text::xid8, snapshot)")) == {(False,)}


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_the_snapshot_of_a_new_subscription_is_taken_after_a_purge_that_it_waits_for(dsn, conn, isolation):
    """Else a record that commits, is delivered elsewhere and is purged during the wait would be missing."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"alter database {conn.info.dbname} set default_transaction_isolation = '{isolation}'")
    outbox = Outbox(dsn, pooler=True)
    publish(conn, 1)
    with psycopg.connect(dsn) as purging, background() as run:
        purging.execute(PURGE)
        created = run(outbox.subscriptions.create, "audit", "now")
        eventually(lambda: waiting_for_lock(conn))
        publish(conn, 2)
        conn.execute("update partbox.partition set floor_id = 2")
        assert not created.done()
        purging.commit()
        created.result()
    publish(conn, 3)
    assert gets(conn, "audit") == [3]
    assert set(rows(conn, "audit", "floor_id")) == {(2,)}


def test_creates_do_not_wait_for_each_other(dsn, outbox, conn):
    with psycopg.connect(dsn) as other:
        other.execute("select partbox.locked('purge', shared => true)")
        outbox.subscriptions.create("audit", "now")
    assert is_paused(conn, "audit") is False


def test_a_subscription_from_a_time_gets_records_published_since_and_later_commits(dsn, outbox, conn):
    publish(conn, 1, 2)
    since = conn.execute("select clock_timestamp()").fetchone()[0]
    with open_transaction(dsn, 3):
        publish(conn, 4, 1001)
        outbox.subscriptions.create("audit", since)
        outbox.subscriptions.create("text", since.isoformat())
        assert gets(conn, "audit") == [4, 1001]
    publish(conn, 5)
    assert gets(conn, "audit") == gets(conn, "text") == [3, 4, 1001, 5]


def test_a_subscription_from_a_time_after_every_record_begins_from_now_on(dsn, outbox, conn):
    publish(conn, 1)
    since = conn.execute("select clock_timestamp()").fetchone()[0]
    with open_transaction(dsn, 2):
        conn.execute("update partbox.record set created_at = created_at - interval '1 h'")
        outbox.subscriptions.create("audit", since)
        outbox.subscriptions.create("now", "now")
    assert rows(conn, "audit", "last_id, floor_id") == rows(conn, "now", "last_id, floor_id")
    assert gets(conn, "audit") == [2]


@dataclass
class Written:
    """A transaction's events of one aggregate, and when its commit began and ended."""

    key: int
    payloads: list[int]
    began: float
    ended: float


def test_a_subscription_from_now_on_beside_many_writers_gets_exactly_the_later_commits(dsn, outbox, conn):
    """Early xids, savepoints, rollbacks, pauses before the commit; aggregates behind row locks."""
    seed = SystemRandom().randrange(1 << 32)
    random = Random(seed)
    conn.execute("create table lock (key int primary key); insert into lock select generate_series(0, 9)")
    conn.execute("create sequence number")
    written: list[Written] = []
    over = threading.Event()
    created: dict[str, tuple[float, float]] = {}
    with background() as run:
        writers = [run(write, dsn, Random(seed + n), written, over) for n in range(8)]
        for number in range(12):
            more(written, random.randint(3, 20))
            began = time.monotonic()
            outbox.subscriptions.create(f"s{number}", "now")
            created[f"s{number}"] = (began, time.monotonic())
        more(written, 20)
        over.set()
        for writer in writers:
            writer.result()
    for name, (began, ended) in created.items():
        got = gets(conn, name)
        found = set(got)
        for each in written:
            if each.ended < began:
                assert not found & set(each.payloads), f"from before, seed {seed}"
            elif each.began > ended:
                assert set(each.payloads) <= found, f"lost, seed {seed}"
            else:
                assert len(found & set(each.payloads)) in (0, len(each.payloads)), f"half a transaction, seed {seed}"
        for key in range(10):
            of_key = [payload for each in written if each.key == key for payload in each.payloads]
            tail = [payload for payload in got if payload in set(of_key)]
            assert tail == sorted(of_key)[len(of_key) - len(tail) :], f"a gap, seed {seed}"


def more(written: list[Written], count: int) -> None:
    """Wait for so many transactions more."""
    reached = len(written) + count
    eventually(lambda: len(written) >= reached)


def write(dsn, random: Random, written: list[Written], over: threading.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not over.is_set():
            key, fails = random.randrange(10), random.random() < 0.15
            with conn.transaction():
                if random.random() < 0.5:
                    conn.execute("select pg_current_xact_id()")
                conn.execute("select pg_sleep(%s)", [random.random() * 0.01])
                conn.execute("select from lock where key = %s for update", [key])
                payloads = numbers(conn, random.randint(1, 3))
                publish(conn, *payloads, key=f"key {key}")
                if random.random() < 0.3:
                    with conn.transaction():
                        publish(conn, -1)
                        raise Rollback
                conn.execute("select pg_sleep(%s)", [random.choice([0, 0, 0.002, 0.05])])
                began = time.monotonic()
                if fails:
                    raise Rollback
            if not fails:
                written.append(Written(key, payloads, began, time.monotonic()))


def numbers(conn, count: int) -> list[int]:
    """Numbers that rise in the order in which they are asked for."""
    return [conn.execute("select nextval('number')").fetchone()[0] for _ in range(count)]


def test_the_event_types_of_a_subscription_are_stored_and_none_means_all(outbox, conn):
    outbox.subscriptions.create("audit")
    outbox.subscriptions.create("urgent", types=["PaymentFailed", "FraudSuspected", "PaymentFailed"])
    assert subscriptions.find_wanted_types(conn, SCHEMA, "audit") is None
    assert subscriptions.find_wanted_types(conn, SCHEMA, "default") is None
    assert subscriptions.find_wanted_types(conn, SCHEMA, "urgent") == {"PaymentFailed", "FraudSuspected"}
    with pytest.raises(SchemaError, match="'nobody' does not exist"):
        subscriptions.find_wanted_types(conn, SCHEMA, "nobody")


@pytest.mark.parametrize("name", ["ünï cödé", "o'x\"; drop %s {x} \\", "x" * 100])
def test_a_subscription_can_have_any_visible_name(outbox, conn, name):
    outbox.subscriptions.create(name, "now", [name])
    publish(conn, 1)
    assert gets(conn, name) == [1]
    assert subscriptions.find_wanted_types(conn, SCHEMA, name) == {name}
    assert outbox.subscriptions.pause(name)
    assert outbox.subscriptions.replay(name, from_id=1) == 0
    outbox.subscriptions.drop(name)
    assert is_paused(conn, name) is None


@pytest.mark.parametrize("schema", ["a%b", "Ünï \"{x}' \\"])
def test_subscriptions_can_be_managed_in_a_schema_of_any_name(empty_dsn, schema):
    outbox = Outbox(empty_dsn, schema=schema, auto_migrate=True)
    outbox.subscriptions.create("audit", "now", ["%s"])
    assert outbox.subscriptions.replay("audit", from_time=datetime(2020, 1, 1, tzinfo=UTC)) == 0
    outbox.subscriptions.drop("audit")
    assert [each.name for each in outbox.subscriptions.list()] == ["default"]


NONSENSE = [
    (["default"], "subscription 'default' exists already in schema 'partbox': choose another name, or drop it"),
    ([""], "subscription is empty: name it"),
    (["x" * 101], "has 101 characters, above 100: shorten it"),
    (["a\0b"], "holds a NUL character"),
    (["a\nb"], "holds control characters: rename it"),
    ([" a"], "begins or ends with a blank"),
    (["a", "yesterday"], "start 'yesterday' is no time: write it in ISO 8601, such as .*; or \"beginning\", or"),
    (
        ["a", "2026-01-31T09:00"],
        "start 2026-01-31T09:00 has no time zone: give it one, such as 2026-01-31T09:00:00Z",
    ),
    (["a", datetime(2026, 1, 1)], "has no time zone"),
    (["a", 7], "start must be a datetime, not int 7"),
    (["a", datetime(2999, 1, 1, tzinfo=UTC)], "start 2999-01-01 .* lies in the future: give a time that is past"),
    (["a", "now", []], "types is empty, so nothing would ever be delivered"),
    (["a", "now", "Placed"], r"types 'Placed' is one type: give a list, \['Placed'\]"),
    (["a", "now", ["a\0b"]], "holds a NUL character"),
]


def test_senseless_arguments_are_refused_and_no_subscription_is_created(outbox, conn):
    for arguments, said in NONSENSE:
        with pytest.raises(PartboxError, match=said):
            outbox.subscriptions.create(*arguments)
        assert conn.execute("select array_agg(name) from partbox.subscription").fetchone() == (["default"],), said
        assert conn.execute("select count(*) from partbox.partition").fetchone() == (256,), said


def test_only_one_of_many_concurrent_creates_of_the_same_name_succeeds(outbox, conn):
    def made(_: int) -> bool:
        try:
            outbox.subscriptions.create("audit", "now")
        except PartboxError:
            return False
        return True

    with background() as run:
        results = [run(made, number) for number in range(8)]
        assert sum(result.result() for result in results) == 1
    assert len(rows(conn, "audit", "partition")) == 256


def test_a_reader_without_privilege_on_the_sequence_is_refused(dsn, conn, outbox):
    """PostgreSQL 18 would read nothing there, and "now" would become "the beginning"."""
    conn.execute(
        "drop role if exists blind; create role blind login; grant usage on schema partbox to blind;"
        " grant all on all tables in schema partbox to blind"
    )
    try:
        with pytest.raises(SchemaError, match="no privilege on sequence"):
            Outbox(psycopg.conninfo.make_conninfo(dsn, user="blind")).subscriptions.create("audit", "now")
    finally:
        conn.execute("drop owned by blind; drop role blind")
