"""A replay brings again what follows from an id or a time, and nothing else."""

import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from ownership import assign, background, claim, expire, join, owners, save, worker
from subscribing import PURGE, SCHEMA, consume, gets, ids, is_paused, open_transaction, publish, rows, waiting_for_lock
from waiting import eventually

from partbox.db.operator import subscriptions
from partbox.errors import PartboxError
from partbox.protocol.rows import CursorSave


@pytest.fixture
def consumed(outbox, conn) -> None:
    """A subscription `audit` that has consumed events 1 to 9, of several partitions."""
    consume(conn, outbox)


def test_a_replay_from_an_id_brings_everything_from_there_on_and_nothing_below(dsn, outbox, conn, consumed):
    before = rows(conn, "audit", "snapshot::text, floor_id")
    with open_transaction(dsn, 10):
        publish(conn, 11)
        assert outbox.subscriptions.replay("audit", from_id=ids(conn)[6]) == 256
        assert gets(conn, "audit") == [6, 7, 8, 9, 11]
    assert gets(conn, "audit") == [6, 7, 8, 9, 10, 11]
    assert rows(conn, "audit", "snapshot::text, floor_id") == before
    assert is_paused(conn, "audit") is False


def test_records_that_had_not_committed_at_the_cursor_are_delivered_after_a_replay_above_them(dsn, outbox, conn):
    with open_transaction(dsn, 1):
        publish(conn, 2, 3, 4)
        outbox.subscriptions.create("audit", "now")
        outbox.subscriptions.replay("audit", from_id=ids(conn)[4])
        assert gets(conn, "audit") == [4]
    assert gets(conn, "audit") == [1, 4]


def test_a_replay_from_above_the_cursor_skips_no_backlog_that_the_snapshot_shows(outbox, conn, consumed):
    publish(conn, *range(10, 20))
    conn.execute(
        "update partbox.partition set snapshot = pg_current_snapshot(), floor_id = 19 where subscription = 'audit'"
    )
    assert outbox.subscriptions.replay("audit", from_id=ids(conn)[15]) == 0
    assert gets(conn, "audit") == list(range(10, 20))


def test_a_replay_from_a_time_brings_what_was_published_then_or_later(outbox, conn, consumed):
    since = conn.execute("select created_at from partbox.record where payload::text = '5'").fetchone()[0]
    rewound = outbox.subscriptions.replay("audit", from_time=since)
    assert gets(conn, "audit") == [5, 6, 7, 8, 9]
    assert 0 < rewound <= 5


def test_a_replay_from_a_time_after_everything_brings_nothing(outbox, conn, consumed):
    before = rows(conn, "audit", "*")
    assert outbox.subscriptions.replay("audit", from_time=datetime.now(UTC) + timedelta(seconds=-0.001)) == 0
    assert rows(conn, "audit", "*") == before


def test_a_replay_forgets_what_is_parked_from_there_on_and_leaves_the_rest(outbox, conn, consumed):
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
            outbox.subscriptions.replay, "audit", from_id=3, progress=lambda left: seen.append(left[0].owned_partitions)
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


def test_the_former_owner_can_save_nothing_after_a_replay(conn, outbox):
    (me,) = join(conn)
    assign(conn, me)
    row = claim(conn, me)[0]
    conn.execute("update partbox.partition set owner = null")
    publish(conn, 1)
    outbox.subscriptions.replay("default", from_id=1)
    conn.execute("update partbox.partition set owner = %s", [me])
    assert save(conn, me, [CursorSave(row.partition, row.epoch, "9:9:", 99, 99, False)]) == set()


def test_a_replay_fails_and_changes_nothing_if_a_worker_does_not_release_in_time(outbox, conn, consumed):
    (me,) = join(conn, node="node-a", subscription="audit")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit' and partition < 3", [me])
    before = rows(conn, "audit", "last_id, epoch")
    with pytest.raises(
        PartboxError,
        match=r"'audit': after 0\.1 s 3 partitions are still owned by node-a 1: handlers there have not ended\. Wait "
        r"for them, or end those processes, and try again; nothing was changed, and delivery goes on$",
    ):
        outbox.subscriptions.replay("audit", from_id=1, timeout=0.1)
    assert is_paused(conn, "audit") is False
    assert rows(conn, "audit", "last_id, epoch") == before


@pytest.mark.parametrize("was_paused", [False, True])
def test_an_interrupted_replay_undoes_its_own_pause_but_not_one_from_before(outbox, conn, consumed, was_paused):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit'", [me])
    if was_paused:
        outbox.subscriptions.pause("audit")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.subscriptions.replay("audit", from_id=1, progress=interrupt)
    assert is_paused(conn, "audit") is was_paused


def test_a_replay_frees_partitions_of_a_dead_process_after_its_lease_without_any_supervisor(outbox, conn, consumed):
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


def test_a_replay_does_not_bury_a_process_that_sends_heartbeats(outbox, conn, consumed):
    """Its lease looks over by the database's clock, which may have stepped; its heartbeats say that it lives."""
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.instance set lease = '0.3 s'")
    conn.execute("update partbox.partition set owner = %s where subscription = 'audit'", [me])

    def beat(_: object) -> None:
        expire(conn, me)

    with pytest.raises(PartboxError, match="still owned"):
        outbox.subscriptions.replay("audit", from_id=1, timeout=1.5, progress=beat)
    assert set(rows(conn, "audit", "owner")) == {(me,)}


NONSENSE = [
    ({}, "from_id None, from_time None: give one of the two"),
    ({"from_id": 1, "from_time": "2026-01-01T00:00Z"}, "give one of the two"),
    ({"from_id": 0}, "from_id 0 is no record id"),
    ({"from_id": True}, "from_id True is no record id"),
    ({"from_id": 1 << 63}, "is no record id: record ids are whole numbers from 1 to 9223372036854775807"),
    ({"from_id": "7"}, "from_id '7' is no record id"),
    ({"from_id": 10}, "record 10 does not exist yet: the newest is record 9"),
    ({"from_time": "2026-01-01T00:00"}, "from_time 2026-01-01T00:00 has no time zone"),
    ({"from_time": "noon"}, "from_time 'noon' is no time: write it in ISO 8601"),
    ({"from_time": "2999-01-01T00:00Z"}, "lies in the future: give a time that is past"),
    ({"from_id": 1, "timeout": "soon"}, "timeout 'soon' is no length of time"),
]


def test_a_senseless_replay_is_refused_before_the_subscription_is_paused(outbox, conn, consumed):
    (me,) = join(conn, subscription="audit")
    conn.execute("update partbox.partition set assignee = %s where subscription = 'audit'", [me])
    before = rows(conn, "audit", "*")
    for arguments, said in NONSENSE:
        with pytest.raises(PartboxError, match=said):
            outbox.subscriptions.replay("audit", **arguments)
        assert rows(conn, "audit", "*") == before, said
        assert is_paused(conn, "audit") is False, said


@pytest.fixture
def purged(conn):
    """Events 1 to 9, published an hour apart each, the last now; a purge has removed 1 to 5."""
    publish(conn, *range(1, 10))
    conn.execute("update partbox.record set created_at = now() - (9 - payload::text::int) * interval '1 h'")
    conn.execute("delete from partbox.record where id <= 5")
    conn.execute("insert into partbox.meta (key, value) values ('purged_id', '5')")


def test_a_replay_of_what_a_purge_has_removed_is_refused_with_the_lowest_id_possible(outbox, conn, purged):
    said = (
        "replay from record 5 is not possible: a purge has removed records up to id 5; "
        "the earliest possible start is record 6"
    )
    with pytest.raises(PartboxError, match=said):
        outbox.subscriptions.replay("default", from_id=5)
    assert is_paused(conn, "default") is False
    outbox.subscriptions.replay("default", from_id=6)


def test_a_replay_from_a_time_is_refused_unless_an_older_record_is_left_above_the_purged_ids(outbox, conn, purged):
    six, seven = (
        conn.execute("select created_at from partbox.record where id = %s", [id]).fetchone()[0] for id in (6, 7)
    )
    for early in (six, six - timedelta(days=9)):
        with pytest.raises(PartboxError, match=r"up to id 5, perhaps from that time or later; the earliest .* 6"):
            outbox.subscriptions.replay("default", from_time=early)
    outbox.subscriptions.replay("default", from_time=six + timedelta(seconds=1))
    outbox.subscriptions.replay("default", from_time=seven)


def test_a_purge_between_the_check_and_the_replay_is_noticed_and_the_pause_undone(outbox, conn, consumed):
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


def test_no_batch_of_a_purge_runs_beside_a_replay_or_removes_records_to_be_replayed(dsn, outbox, conn, consumed):
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
    with pytest.raises(PartboxError, match="removed records up to id 5; the earliest possible start is record 6"):
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
