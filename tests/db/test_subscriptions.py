"""Subscriptions: where they begin, what a pause stops, what a replay brings again, what a drop removes.

What a subscription gets is read from the view `record_status`, which says of each record what its cursor says.
"""

import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom

import psycopg
import pytest
from ownership import ALL, SCHEMA, assign, background, blocked, bury, claim, expire, join, owners, save, worker
from psycopg import Rollback
from waiting import eventually

from partbox import Outbox
from partbox.db import cursors, instances, subscriptions
from partbox.db.cursors import Saving
from partbox.errors import PartboxError, SchemaError

PURGE = "select pg_advisory_xact_lock(hashtext('partbox.purge'), hashtext('partbox'))"


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def publish(outbox, conn):
    """Publishes events of these payloads; their payloads are what `gets` returns."""

    def publish(*payloads: int, on: psycopg.Connection | None = None, key: str = "") -> None:
        with nullcontext(on) if on else conn.transaction():
            for payload in payloads:
                outbox.publish(on or conn, "Step", payload, aggregate_type="A", aggregate_id=key or str(payload))

    return publish


@contextmanager
def open_transaction(dsn, publish, *payloads: int):
    """A transaction that has published these, and commits at the end."""
    with psycopg.connect(dsn) as conn:
        publish(*payloads, on=conn)
        yield conn


def gets(conn, subscription: str) -> list[int]:
    """The payloads of what it is still to get, in the order of the log."""
    return [
        payload
        for (payload,) in conn.execute(
            "select r.payload::text::int from partbox.record_status s"
            " join partbox.record r on r.partition = s.partition and r.id = s.id"
            " where s.subscription = %s and s.status = 'pending' order by s.id",
            [subscription],
        )
    ]


def ids(conn) -> dict[int, int]:
    """The record id of each payload."""
    return dict(conn.execute("select payload::text::int, id from partbox.record").fetchall())


def rows(conn, subscription: str, columns: str) -> list[tuple]:
    return conn.execute(
        f"select {columns} from partbox.partition where subscription = %s order by partition", [subscription]
    ).fetchall()


def is_paused(conn, subscription: str) -> bool | None:
    return subscriptions.paused(conn, SCHEMA, subscription)


# Where one begins.


def test_from_the_beginning_it_gets_all_that_the_log_holds(outbox, conn, publish):
    publish(1, 2, 3)
    outbox.subscriptions.create("audit")
    publish(4)
    assert gets(conn, "audit") == gets(conn, "default") == [1, 2, 3, 4]
    assert set(rows(conn, "audit", "snapshot::text, last_id, floor_id, owner, assignee")) == {
        ("1:1:", 0, 0, None, None)
    }
    assert len(rows(conn, "audit", "partition")) == 256


def test_from_now_on_it_gets_what_commits_after_the_call_also_of_transactions_that_were_open(
    dsn, outbox, conn, publish
):
    publish(1)
    with psycopg.connect(dsn) as early:
        early.execute("select pg_current_xact_id()")  # has its xid before the call, publishes after it
        with open_transaction(dsn, publish, 2) as slow:
            publish(3)
            outbox.subscriptions.create("audit", "now")
            assert gets(conn, "audit") == []
            publish(4)
            publish(5, on=slow)
        publish(6, on=early)
        assert gets(conn, "audit") == [2, 4, 5]
    assert gets(conn, "audit") == [2, 4, 5, 6]


def test_now_before_the_first_publish_gets_everything(outbox, conn, publish):
    outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "last_id, floor_id")) == {(0, 0)}
    publish(1)
    assert gets(conn, "audit") == [1]


def test_it_begins_with_the_highest_floor_of_all_partitions_of_all_subscriptions(outbox, conn, publish):
    publish(*range(9))
    outbox.subscriptions.create("other")
    conn.execute("update partbox.partition set floor_id = 5 where subscription = 'default' and partition = 7")
    conn.execute("update partbox.partition set floor_id = 3 where subscription = 'other' and partition = 8")
    outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "floor_id, last_id")) == {(5, 9)}


def test_its_snapshot_does_not_show_its_own_transaction_as_ended(outbox, conn):
    conn.execute("select pg_current_xact_id()")
    outbox.subscriptions.create("audit", "now")
    assert set(rows(conn, "audit", "pg_visible_in_snapshot(xmin::text::xid8, snapshot)")) == {(False,)}


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_its_snapshot_is_taken_after_a_purge_that_it_waits_for(dsn, conn, publish, isolation):
    """Else a record that commits, is delivered elsewhere and is purged during the wait would be missing."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"alter database {conn.info.dbname} set default_transaction_isolation = '{isolation}'")
    outbox = Outbox(dsn, pooler=True)
    publish(1)
    with psycopg.connect(dsn) as purging, background() as run:
        purging.execute(PURGE)
        created = run(outbox.subscriptions.create, "audit", "now")
        eventually(lambda: waiting_for_lock(conn))
        publish(2)
        conn.execute("update partbox.partition set floor_id = 2")
        assert not created.done()
        purging.commit()
        created.result()
    publish(3)
    assert gets(conn, "audit") == [3]
    assert set(rows(conn, "audit", "floor_id")) == {(2,)}


def waiting_for_lock(conn) -> bool:
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return conn.execute(query).fetchone() == (1,)


def test_creates_do_not_wait_for_each_other(dsn, outbox, conn):
    with psycopg.connect(dsn) as other:
        other.execute(PURGE.replace("_lock(", "_lock_shared("))
        outbox.subscriptions.create("audit", "now")
    assert is_paused(conn, "audit") is False


def test_from_a_time_on_it_gets_what_was_published_then_or_later_and_what_commits_later(dsn, outbox, conn, publish):
    publish(1, 2)
    since = conn.execute("select clock_timestamp()").fetchone()[0]
    with open_transaction(dsn, publish, 3):
        publish(4, 1001)
        outbox.subscriptions.create("audit", since)
        outbox.subscriptions.create("text", since.isoformat())
        assert gets(conn, "audit") == [4, 1001]
    publish(5)
    assert gets(conn, "audit") == gets(conn, "text") == [3, 4, 1001, 5]


def test_from_a_time_after_everything_is_from_now_on(dsn, outbox, conn, publish):
    publish(1)
    since = conn.execute("select clock_timestamp()").fetchone()[0]
    with open_transaction(dsn, publish, 2):
        conn.execute("update partbox.record set created_at = created_at - interval '1 h'")
        outbox.subscriptions.create("audit", since)
        outbox.subscriptions.create("now", "now")
    assert rows(conn, "audit", "snapshot::text, last_id, floor_id") == rows(
        conn, "now", "snapshot::text, last_id, floor_id"
    ) or rows(conn, "audit", "last_id, floor_id") == rows(conn, "now", "last_id, floor_id")
    assert gets(conn, "audit") == [2]


@dataclass
class Written:
    """A transaction's events of one aggregate, and when its commit began and ended."""

    key: int
    payloads: list[int]
    began: float
    ended: float


def test_now_beside_many_writers_takes_nothing_from_before_and_leaves_nothing_from_after(dsn, outbox, conn, publish):
    """Early xids, savepoints, rollbacks, pauses before the commit; aggregates behind row locks."""
    seed = SystemRandom().randrange(1 << 32)
    random = Random(seed)
    conn.execute("create table lock (key int primary key); insert into lock select generate_series(0, 9)")
    conn.execute("create sequence number")
    written: list[Written] = []
    over = threading.Event()
    created: dict[str, tuple[float, float]] = {}
    with background() as run:
        writers = [run(write, dsn, publish, Random(seed + n), written, over) for n in range(8)]
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


def write(dsn, publish, random: Random, written: list[Written], over: threading.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not over.is_set():
            key, fails = random.randrange(10), random.random() < 0.15
            with conn.transaction():
                if random.random() < 0.5:
                    conn.execute("select pg_current_xact_id()")
                conn.execute("select pg_sleep(%s)", [random.random() * 0.01])
                conn.execute("select from lock where key = %s for update", [key])
                payloads = numbers(conn, random.randint(1, 3))
                publish(*payloads, on=conn, key=f"key {key}")
                if random.random() < 0.3:
                    with conn.transaction():
                        publish(-1, on=conn)
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


def test_types_are_kept_and_none_means_all(outbox, conn):
    outbox.subscriptions.create("audit")
    outbox.subscriptions.create("urgent", types=["PaymentFailed", "FraudSuspected", "PaymentFailed"])
    assert subscriptions.filters(conn, SCHEMA, "audit") is None
    assert subscriptions.filters(conn, SCHEMA, "default") is None
    assert subscriptions.filters(conn, SCHEMA, "urgent") == {"PaymentFailed", "FraudSuspected"}
    with pytest.raises(SchemaError, match="'nobody' does not exist"):
        subscriptions.filters(conn, SCHEMA, "nobody")


@pytest.mark.parametrize("name", ["ünï cödé", "o'x\"; drop %s {x} \\", "x" * 100])
def test_any_visible_name_will_do(outbox, conn, publish, name):
    outbox.subscriptions.create(name, "now", [name])
    publish(1)
    assert gets(conn, name) == [1]
    assert subscriptions.filters(conn, SCHEMA, name) == {name}
    assert outbox.subscriptions.pause(name)
    assert outbox.subscriptions.replay(name, from_id=1) == 0
    outbox.subscriptions.drop(name)
    assert is_paused(conn, name) is None


@pytest.mark.parametrize("schema", ["a%b", "Ünï \"{x}' \\"])
def test_any_schema_will_do(empty_dsn, schema):
    outbox = Outbox(empty_dsn, schema=schema, auto_migrate=True)
    outbox.subscriptions.create("audit", "now", ["%s"])
    assert outbox.subscriptions.replay("audit", from_time=datetime(2020, 1, 1, tzinfo=UTC)) == 0
    outbox.subscriptions.drop("audit")
    assert [each.name for each in outbox.subscriptions.list()] == ["default"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
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
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_made(outbox, conn, arguments, said):
    with pytest.raises(PartboxError, match=said):
        outbox.subscriptions.create(*arguments)
    assert conn.execute("select array_agg(name) from partbox.subscription").fetchone() == (["default"],)
    assert conn.execute("select count(*) from partbox.partition").fetchone() == (256,)


def test_of_many_creates_of_a_name_at_once_one_wins(outbox, conn):
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


# Pause and resume.


def test_a_pause_takes_every_assignee_away_and_lets_owners_be(outbox, conn):
    me, _ = join(conn, 2)
    assign(conn, me)
    claim(conn, me)
    assert outbox.subscriptions.pause("default") is True
    assert outbox.subscriptions.pause("default") is False
    assert set(rows(conn, "default", "assignee, owner")) == {(None, me)}
    assert instances.assignees(conn, SCHEMA, "default") == []


def test_a_pause_leaves_other_subscriptions_alone(outbox, conn):
    outbox.subscriptions.create("audit")
    assign(conn, *join(conn))
    outbox.subscriptions.pause("audit")
    assert None not in {assignee for (assignee,) in rows(conn, "default", "assignee")}
    assert (is_paused(conn, "audit"), is_paused(conn, "default")) == (True, False)


def test_no_plan_comes_into_force_in_a_paused_subscription_or_in_none(outbox, conn):
    (me,) = join(conn)
    outbox.subscriptions.pause("default")
    assert instances.plan(conn, SCHEMA, "default", [me], [None] * 256, [me] * 256) is False
    assert instances.plan(conn, SCHEMA, "gone", [], [], []) is False
    outbox.subscriptions.resume("default")
    assert instances.plan(conn, SCHEMA, "default", [me], [None] * 256, [me] * 256) is True


def test_a_plan_that_waited_for_a_pause_finds_it(dsn, conn):
    (me,) = join(conn)
    with worker(dsn) as pausing, worker(dsn) as planning, background() as run:
        with pausing.transaction():
            assert subscriptions.pause(pausing, SCHEMA, "default")
            planned = run(instances.plan, planning, SCHEMA, "default", [me], [None] * 256, [me] * 256)
            blocked(conn, planning)
        assert planned.result() is False
    assert set(rows(conn, "default", "assignee")) == {(None,)}


def test_a_resume_says_whether_it_was_paused(outbox, conn):
    assert outbox.subscriptions.resume("default") is False
    outbox.subscriptions.pause("default")
    assert outbox.subscriptions.resume("default") is True
    assert is_paused(conn, "default") is False


@pytest.mark.parametrize("command", ["pause", "resume", "drop", "replay"])
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(outbox, command):
    arguments = {"from_id": 1} if command == "replay" else {}
    with pytest.raises(PartboxError, match="'audit' does not exist in schema 'partbox': there are default"):
        getattr(outbox.subscriptions, command)("audit", **arguments)
    with pytest.raises(PartboxError, match="holds a NUL character"):
        getattr(outbox.subscriptions, command)("a\0b", **arguments)


# Replay.


@pytest.fixture
def consumed(outbox, conn, publish):
    """A subscription `audit` that has consumed events 1 to 9, of several partitions."""
    publish(*range(1, 10))
    outbox.subscriptions.create("audit", "now")
    conn.execute("update partbox.partition set floor_id = 4 where subscription = 'audit'")
    assert gets(conn, "audit") == []


def test_a_replay_from_an_id_brings_everything_from_there_on_and_nothing_below(dsn, outbox, conn, publish, consumed):
    before = rows(conn, "audit", "snapshot::text, floor_id")
    with open_transaction(dsn, publish, 10):
        publish(11)
        assert outbox.subscriptions.replay("audit", from_id=ids(conn)[6]) == 256
        assert gets(conn, "audit") == [6, 7, 8, 9, 11]
    assert gets(conn, "audit") == [6, 7, 8, 9, 10, 11]
    assert rows(conn, "audit", "snapshot::text, floor_id") == before
    assert is_paused(conn, "audit") is False


def test_what_had_not_committed_when_the_cursor_was_saved_still_comes_after_a_replay_above_it(
    dsn, outbox, conn, publish
):
    with open_transaction(dsn, publish, 1):
        publish(2, 3, 4)
        outbox.subscriptions.create("audit", "now")
        outbox.subscriptions.replay("audit", from_id=ids(conn)[4])
        assert gets(conn, "audit") == [4]
    assert gets(conn, "audit") == [1, 4]


def test_a_replay_from_above_the_cursor_skips_nothing_of_a_backlog_that_its_snapshot_shows(
    outbox, conn, publish, consumed
):
    publish(*range(10, 20))
    conn.execute(
        "update partbox.partition set snapshot = pg_current_snapshot(), floor_id = 19 where subscription = 'audit'"
    )
    assert outbox.subscriptions.replay("audit", from_id=ids(conn)[15]) == 0
    assert gets(conn, "audit") == list(range(10, 20))


def test_a_replay_from_a_time_brings_what_was_published_then_or_later(outbox, conn, publish, consumed):
    since = conn.execute("select created_at from partbox.record where payload::text = '5'").fetchone()[0]
    rewound = outbox.subscriptions.replay("audit", from_time=since)
    assert gets(conn, "audit") == [5, 6, 7, 8, 9]
    assert 0 < rewound <= 5


def test_a_replay_from_a_time_after_everything_brings_nothing(outbox, conn, consumed):
    before = rows(conn, "audit", "*")
    assert outbox.subscriptions.replay("audit", from_time=datetime.now(UTC) + timedelta(seconds=-0.001)) == 0
    assert rows(conn, "audit", "*") == before


def test_a_replay_forgets_what_is_parked_from_there_on_and_leaves_the_rest(outbox, conn, publish, consumed):
    of = {
        payload: (id, partition)
        for payload, id, partition in conn.execute("select payload::text::int, id, partition from partbox.record")
    }
    for subscription in ("audit", "default"):
        for payload, state in ((3, "dead"), (6, "retrying"), (7, "dead")):
            conn.execute(
                "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state,"
                " blocks) values (%s, %s, %s, 'A', 'Step', %s, true)",
                [subscription, *of[payload], state],
            )
    before = dict(rows(conn, "audit", "partition, epoch"))
    versions = dict(rows(conn, "audit", "partition, parked_version"))
    outbox.subscriptions.replay("audit", from_id=of[6][0])
    left = conn.execute("select subscription, record_id from partbox.parked order by 1, 2").fetchall()
    assert left == [("audit", of[3][0]), *(("default", of[payload][0]) for payload in (3, 6, 7))]
    assert gets(conn, "audit") == [6, 7, 8, 9]
    assert all(epoch > before[partition] for partition, epoch in rows(conn, "audit", "partition, epoch"))
    assert all(v == versions[p] + 1 for p, v in rows(conn, "audit", "partition, parked_version"))


def test_a_replay_leaves_other_subscriptions_alone(outbox, conn, consumed):
    outbox.subscriptions.create("other", "now")
    before = rows(conn, "other", "*") + rows(conn, "default", "*")
    outbox.subscriptions.replay("audit", from_id=1)
    assert rows(conn, "other", "*") + rows(conn, "default", "*") == before


def test_a_replay_of_a_paused_subscription_leaves_it_paused(outbox, conn, consumed):
    outbox.subscriptions.pause("audit")
    outbox.subscriptions.replay("audit", from_id=1)
    assert is_paused(conn, "audit") is True


def test_a_replay_waits_for_the_owner_to_release(outbox, conn, dsn, consumed):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set owner = %s, epoch = 7 where subscription = 'audit'", [me])
    seen: list[int] = []
    with background() as run:
        replayed = run(
            outbox.subscriptions.replay, "audit", from_id=3, progress=lambda left: seen.append(left[0].owned)
        )
        eventually(lambda: 256 in seen)
        assert is_paused(conn, "audit") is True
        conn.execute("update partbox.partition set owner = null where partition > 3 and subscription = 'audit'")
        eventually(lambda: 4 in seen)
        assert not replayed.done()
        conn.execute("update partbox.partition set owner = null where subscription = 'audit'")
        replayed.result()
    assert gets(conn, "audit") == list(range(3, 10))
    assert is_paused(conn, "audit") is False


def test_the_owner_of_before_can_save_nothing_after_a_replay(conn, outbox, publish):
    (me,) = join(conn)
    assign(conn, me)
    row = claim(conn, me)[0]
    conn.execute("update partbox.partition set owner = null")
    publish(1)
    outbox.subscriptions.replay("default", from_id=1)
    conn.execute("update partbox.partition set owner = %s", [me])
    assert save(conn, me, [Saving(row.partition, row.epoch, "9:9:", 99, 99, False)]) == set()


def test_a_worker_that_does_not_let_go_in_time_leaves_it_paused_and_set_back_nothing(outbox, conn, consumed):
    (me,) = join(conn, node="node-a", subscription="audit")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit' and partition < 3", [me])
    before = rows(conn, "audit", "last_id, epoch")
    with pytest.raises(
        PartboxError,
        match=r"'audit' is paused, but after 0\.1 s 3 partitions are still owned by node-a 1: handlers there have not "
        r"ended\. It stays paused: wait for them, .*`partbox subscription resume` lets it go on",
    ):
        outbox.subscriptions.replay("audit", from_id=1, timeout=0.1)
    assert is_paused(conn, "audit") is True
    assert rows(conn, "audit", "last_id, epoch") == before


@pytest.mark.parametrize("was_paused", [False, True])
def test_a_wait_that_is_interrupted_undoes_its_own_pause_only(outbox, conn, consumed, was_paused):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit'", [me])
    if was_paused:
        outbox.subscriptions.pause("audit")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.subscriptions.replay("audit", from_id=1, progress=interrupt)
    assert is_paused(conn, "audit") is was_paused


def test_what_a_dead_process_owns_is_freed_after_its_lease_though_no_supervisor_is_left(outbox, conn, consumed):
    (dead,) = join(conn, subscription="audit")
    conn.execute("update partbox.instance set lease = '0.5 s'")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit' and partition < 9", [dead])
    conn.execute(
        "update partbox.partition set owner = gen_random_uuid() where subscription = 'audit' and partition = 99"
    )
    began = time.monotonic()
    outbox.subscriptions.replay("audit", from_id=1, timeout=20)
    assert time.monotonic() - began >= 0.5
    assert owners(conn) == {}
    assert conn.execute("select count(*) from partbox.instance").fetchone() == (0,)


def test_a_process_that_beats_is_not_buried(outbox, conn, consumed):
    """Its lease looks over by the database's clock, which may have stepped; its heartbeats say that it lives."""
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.instance set lease = '0.3 s'")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit'", [me])

    def beat(_: object) -> None:
        expire(conn, me)

    with pytest.raises(PartboxError, match="still owned"):
        outbox.subscriptions.replay("audit", from_id=1, timeout=1.5, progress=beat)
    assert set(rows(conn, "audit", "owner")) == {(me,)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "from_id None, from_time None: give one of the two"),
        ({"from_id": 1, "from_time": "2026-01-01T00:00Z"}, "give one of the two"),
        ({"from_id": 0}, "from_id 0 is no record id"),
        ({"from_id": True}, "from_id True is no record id"),
        ({"from_id": 1 << 63}, "is no record id: those are whole numbers from 1 to 9223372036854775807"),
        ({"from_id": "7"}, "from_id '7' is no record id"),
        ({"from_id": 10}, "record 10 does not exist yet: the newest is record 9"),
        ({"from_time": "2026-01-01T00:00"}, "from_time 2026-01-01T00:00 has no time zone"),
        ({"from_time": "noon"}, "from_time 'noon' is no time: write it in ISO 8601"),
        ({"from_time": "2999-01-01T00:00Z"}, "lies in the future: give a time that is past"),
        ({"from_id": 1, "timeout": "soon"}, "timeout 'soon' is no length of time"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused_before_anything_stands_still(outbox, conn, consumed, arguments, said):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set assignee = %s where subscription = 'audit'", [me])
    before = rows(conn, "audit", "*")
    with pytest.raises(PartboxError, match=said):
        outbox.subscriptions.replay("audit", **arguments)
    assert rows(conn, "audit", "*") == before
    assert is_paused(conn, "audit") is False


@pytest.fixture
def purged(conn, publish):
    """Events 1 to 9, published an hour apart each, the last now; a purge has removed 1 to 5."""
    publish(*range(1, 10))
    conn.execute("update partbox.record set created_at = now() - (9 - payload::text::int) * interval '1 h'")
    conn.execute("delete from partbox.record where id <= 5")
    conn.execute("insert into partbox.meta (key, value) values ('purged_id', '5')")


def test_a_replay_of_what_a_purge_has_removed_is_refused_with_the_lowest_id_possible(outbox, conn, purged):
    said = (
        "replay from record 5 is not possible: a purge has removed records up to id 5; the lowest possible is from_id 6"
    )
    with pytest.raises(PartboxError, match=said):
        outbox.subscriptions.replay("default", from_id=5)
    assert is_paused(conn, "default") is False
    outbox.subscriptions.replay("default", from_id=6)


def test_a_replay_from_a_time_is_refused_unless_something_older_is_left_above_the_purged(outbox, conn, purged):
    six, seven = (
        conn.execute("select created_at from partbox.record where id = %s", [id]).fetchone()[0] for id in (6, 7)
    )
    for early in (six, six - timedelta(days=9)):
        with pytest.raises(PartboxError, match=r"up to id 5, perhaps of that time or later; the lowest .* from_id 6"):
            outbox.subscriptions.replay("default", from_time=early)
    outbox.subscriptions.replay("default", from_time=six + timedelta(seconds=1))
    outbox.subscriptions.replay("default", from_time=seven)


def test_a_purge_that_comes_between_look_and_replay_is_noticed_and_the_pause_undone(outbox, conn, consumed):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit'", [me])

    def purge(_: object) -> None:
        conn.execute("insert into partbox.meta (key, value) values ('purged_id', '5') on conflict do nothing")
        conn.execute("update partbox.partition set owner = null")

    with pytest.raises(PartboxError, match="a purge has removed records up to id 5"):
        outbox.subscriptions.replay("audit", from_id=2, progress=purge)
    assert is_paused(conn, "audit") is False
    assert gets(conn, "audit") == []


def test_a_replay_waits_for_a_batch_of_a_purge_and_sees_what_it_removed(dsn, outbox, conn, consumed):
    with psycopg.connect(dsn) as purging, background() as run:
        purging.execute(PURGE)
        replayed = run(outbox.subscriptions.replay, "audit", from_id=2)
        eventually(lambda: waiting_for_lock(conn))
        purging.execute("insert into partbox.meta (key, value) values ('purged_id', '5')")
        purging.commit()
        with pytest.raises(PartboxError, match="a purge has removed"):
            replayed.result()


def test_no_batch_of_a_purge_runs_beside_a_replay_and_none_takes_what_comes_again(dsn, outbox, conn, consumed):
    outbox.subscriptions.drop("default")
    conn.execute("update partbox.partition set floor_id = 9")
    purge = "select gone from partbox.purge_records(0, 0, 100, '{0,0}', false)"
    subscriptions.pause(conn, SCHEMA, "audit")
    with worker(dsn) as replaying:
        with replaying.transaction():
            assert subscriptions.replay(replaying, SCHEMA, "audit", 6, None, resume=True).problem is None
            assert conn.execute(purge).fetchall() == []
        assert conn.execute(purge).fetchall() == [(5,)]
    assert gets(conn, "audit") == [6, 7, 8, 9]
    with pytest.raises(PartboxError, match="removed records up to id 5; the lowest possible is from_id 6"):
        outbox.subscriptions.replay("audit", from_id=5)


def test_somebody_who_resumes_meanwhile_stops_the_replay(outbox, conn, consumed):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit'", [me])

    def resume(_: object) -> None:
        outbox.subscriptions.resume("audit")
        conn.execute("update partbox.partition set owner = null")

    with pytest.raises(PartboxError, match="'audit' was resumed by somebody else meanwhile, and nothing was changed"):
        outbox.subscriptions.replay("audit", from_id=2, progress=resume)
    assert gets(conn, "audit") == []


# Drop.


def test_a_drop_removes_what_belongs_to_it_and_nothing_else(outbox, conn, publish, consumed):
    for subscription in ("audit", "default"):
        conn.execute(
            "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
            " values (%s, 1, 1, 'A', 'Step', 'dead', false)",
            [subscription],
        )
    before = rows(conn, "default", "*")
    outbox.subscriptions.drop("audit")
    assert rows(conn, "audit", "*") == []
    assert rows(conn, "default", "*") == before
    assert conn.execute("select subscription from partbox.parked").fetchall() == [("default",)]
    assert conn.execute("select count(*) from partbox.record").fetchone() == (9,)
    outbox.subscriptions.create("audit")
    assert gets(conn, "audit") == list(range(1, 10))


def test_a_drop_is_refused_while_worker_processes_are_registered_and_leaves_it_paused(outbox, conn, consumed):
    join(conn, 7, node="node-a", subscription="audit")
    with pytest.raises(
        PartboxError,
        match=r"worker processes still run for it: node-a 1, .*node-a 5 and 2 more\. It stays paused: stop",
    ):
        outbox.subscriptions.drop("audit", timeout="100ms")
    assert is_paused(conn, "audit") is True
    assert len(rows(conn, "audit", "*")) == 256


def test_a_drop_waits_until_the_workers_have_ended(outbox, conn, consumed):
    (me,) = join(conn, subscription="audit")
    waited = threading.Event()
    with background() as run:
        dropped = run(outbox.subscriptions.drop, "audit", 30, progress=lambda _: waited.set())
        assert waited.wait(30)
        bury(conn, [me], known_dead=True)
        dropped.result()
    assert is_paused(conn, "audit") is None


def test_what_changed_since_the_wait_is_noticed_under_the_locks(conn):
    """The last look is that of the functions, which have locked what they look at."""
    (me,) = join(conn)

    def problems() -> tuple[object, object]:
        replayed = subscriptions.replay(conn, SCHEMA, "default", 1, None, resume=False)
        return subscriptions.drop(conn, SCHEMA, "default"), replayed.problem

    assert problems() == ("resumed", "resumed")
    subscriptions.pause(conn, SCHEMA, "default")
    conn.execute("update partbox.partition set owner = %s where partition = 255", [me])
    assert problems() == ("owners", "owners")
    conn.execute("update partbox.partition set owner = null")
    assert problems() == ("instances", None)
    bury(conn, [me], known_dead=True)
    assert subscriptions.drop(conn, SCHEMA, "default") is None
    assert problems() == ("missing", "missing")


def test_the_default_subscription_can_be_dropped_and_made_again(outbox, conn, publish):
    outbox.subscriptions.drop("default")
    publish(1)
    assert outbox.subscriptions.list() == []
    outbox.subscriptions.create("default", "now")
    publish(2)
    assert gets(conn, "default") == [2]


# List.


def test_the_list_says_what_each_has_to_do(outbox, conn, publish, consumed):
    outbox.subscriptions.create("urgent", "now", ["B", "A"])
    outbox.subscriptions.pause("urgent")
    publish(10, 11)
    join(conn, 2, subscription="audit")
    for id, state in enumerate(["dead", "dead", "held", "retrying", "scheduled"], start=1):
        conn.execute(
            "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
            " values ('audit', %s, 1, 'A', 'Step', %s, false)",
            [id, state],
        )
    audit, default, urgent = outbox.subscriptions.list()
    assert (audit.name, audit.instances, audit.pending, audit.parked, audit.dead) == ("audit", 2, 2, 3, 2)
    assert (default.name, default.pending, default.exact, default.types) == ("default", 11, True, None)
    assert (default.paused_at, default.instances, default.parked, default.dead) == (None, 0, 0, 0)
    assert (urgent.types, urgent.pending, urgent.paused_at is not None) == (("A", "B"), 2, True)
    assert audit.created_at <= urgent.created_at <= urgent.paused_at


def test_a_deep_backlog_is_estimated_and_not_read(outbox, conn):
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select number %% 4, gen_random_uuid(), 'Step', '{}' from generate_series(1, %s) as number",
        [40_000],
    )
    (default,) = outbox.subscriptions.list()
    assert default.exact is False
    assert default.pending == pytest.approx(40_000, rel=0.05)
    conn.execute("update partbox.partition set last_id = 39900")
    (default,) = outbox.subscriptions.list()
    assert (default.exact, default.pending) == (True, 100)


# All at once.


def test_commands_beside_plans_claims_saves_and_buries_never_deadlock(dsn, conn, outbox, publish):
    """Two subscriptions, so that the order of partition rows across subscriptions counts too."""
    conn.execute(f"alter database {conn.info.dbname} set deadlock_timeout = '20ms'")
    publish(*range(1, 30))
    outbox.subscriptions.create("audit")
    for subscription in ("default", "audit"):
        join(conn, 2, subscription=subscription)
    end, done = time.monotonic() + 4, dict.fromkeys(("worked", "planned", "buried", "paused", "replayed"), 0)

    def every(name, act) -> None:
        with worker(dsn) as own:
            while time.monotonic() < end:
                for subscription in ("default", "audit"):
                    done[name] += bool(act(own, subscription))

    def planned(own, subscription):
        members = [m.instance_id for m in instances.members(own, SCHEMA, subscription)]
        seen = instances.assignees(own, SCHEMA, subscription)
        wanted = [members[(number + done["planned"]) % len(members)] for number in ALL]
        return seen and instances.plan(own, SCHEMA, subscription, members, seen, wanted)

    def worked(own, subscription):
        claimed = 0
        for member in instances.members(own, SCHEMA, subscription):
            mine = cursors.claim(own, SCHEMA, subscription, member.instance_id)
            saved = [Saving(row.partition, row.epoch, None, None, None, True) for row in mine]
            if saved:
                cursors.save(own, SCHEMA, subscription, member.instance_id, saved)
            claimed += len(mine)
        return claimed > 1

    def paused(own, subscription):
        subscriptions.pause(own, SCHEMA, subscription)
        return subscriptions.resume(own, SCHEMA, subscription)

    def replayed(own, subscription):
        subscriptions.pause(own, SCHEMA, subscription)
        problem = subscriptions.replay(own, SCHEMA, subscription, 3, None, resume=True).problem
        subscriptions.resume(own, SCHEMA, subscription)
        return problem is None

    def buried(own, _):
        own.execute("update partbox.partition set owner = gen_random_uuid() where partition = 5 and owner is null")
        return instances.bury(own, SCHEMA, [], known_dead=False)[1]

    with background() as run:
        acts = {"worked": worked, "planned": planned, "buried": buried, "paused": paused, "replayed": replayed}
        for running in [run(every, name, act) for name, act in [*acts.items(), *acts.items()]]:
            running.result()
    assert min(done.values()) >= 3, done
