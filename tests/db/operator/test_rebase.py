"""What a rebase refuses, what it waits for, and that it is all or nothing. What it does is in test_rebase_model."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from ownership import background, join
from subscribing import PURGE, SCHEMA, gets, open_transaction, publish, rows
from waiting import eventually

from partbox import Outbox
from partbox.db.connect import check_server
from partbox.db.delivery import instances
from partbox.db.operator import rebase
from partbox.db.schema.migrate import migrate
from partbox.errors import PartboxError, SchemaError
from partbox.operations.rebase import rebase as run

COPIED = "update partbox.meta set xid = '3' where key = 'marker'"
CHANCE = """
update partbox.meta set xid = pg_current_xact_id() where key = 'marker';
update partbox.meta set value = '16384 16385' where key = 'marker_oids'
"""
"""As written in a cluster where transaction ids had come just as far."""
MISSING = "delete from partbox.meta where key = '{}'"
AHEAD = "update partbox.partition set snapshot = '4000000000:4000000000:' where partition = 3"


@pytest.fixture
def copied(conn: psycopg.Connection[Any]) -> None:
    """The schema looks as if it came from elsewhere."""
    publish(conn, 1, 2)
    conn.execute(COPIED)


@pytest.fixture
def rebasing(outbox: Outbox) -> Callable[..., rebase.Rebased]:
    """Rebases; `said` gathers what it waits for."""

    def rebasing(said: list[str], timeout: float = 60) -> rebase.Rebased:
        return run(lambda: outbox.dsn, outbox.settings, timeout=timeout, progress=said.append)

    return rebasing


def cursors(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return rows(conn, "default", "partition, snapshot::text, last_id, floor_id, epoch")


@pytest.mark.parametrize("spoilt", [COPIED, CHANCE, AHEAD, *map(MISSING.format, ["marker", "marker_oids"])])
def test_workers_refuse_a_copy_until_it_is_rebased_and_a_second_rebase_says_that_it_is_healthy(conn, outbox, spoilt):
    conn.execute(spoilt)
    with pytest.raises(SchemaError, match="`partbox rebase` adopts the schema"):
        check_server(conn, SCHEMA)
    done = outbox.rebase()
    assert [(each.subscription, each.cursors, each.parked) for each in done.subscriptions] == [("default", 256, 0)]
    check_server(conn, SCHEMA)
    with pytest.raises(PartboxError, match=r"healthy: .* nothing was changed"):
        outbox.rebase()


def test_a_healthy_outbox_is_rebased_only_by_force_and_loses_nothing_by_it(dsn, conn, outbox):
    with open_transaction(dsn, 1):
        publish(conn, 2)
        outbox.subscriptions.create("audit", "now")
    publish(conn, 3)
    before = cursors(conn)
    with pytest.raises(PartboxError, match="healthy"):
        outbox.rebase()
    assert cursors(conn) == before
    done = outbox.rebase(force=True)
    assert {each.subscription: each.parked for each in done.subscriptions} == {"audit": 1, "default": 0}
    assert gets(conn, "audit") == [3]
    assert conn.execute("select subscription, record_id, state from partbox.parked").fetchall() == [
        ("audit", 1, "ready")
    ]
    check_server(conn, SCHEMA)


def test_the_error_for_a_logical_copy_names_the_schema_in_its_remedy(conn, outbox):
    migrate(outbox.dsn, "my shop")
    conn.execute("""delete from "my shop".meta where key = 'marker'""")
    with pytest.raises(SchemaError, match="`partbox rebase --schema 'my shop'`"):
        check_server(conn, "my shop")
    Outbox(outbox.dsn, schema="my shop").rebase()
    check_server(conn, "my shop")


def test_a_schema_that_is_renamed_is_no_copy(conn):
    conn.execute("alter schema partbox rename to shop")
    check_server(conn, "shop")


def test_a_schema_that_was_rewritten_and_reindexed_is_no_copy(conn):
    conn.execute("vacuum (full, freeze) partbox.meta")
    for table in ("meta", "record"):
        conn.execute(f"reindex table concurrently partbox.{table}")
    check_server(conn, SCHEMA)


@pytest.mark.parametrize("oids", ["tableoid || ' 16385'", "'16384 ' || 'partbox.record_pkey'::regclass::oid"])
def test_a_schema_with_one_changed_oid_counts_as_a_copy(conn, oids):
    conn.execute(f"update partbox.meta set value = {oids} where key = 'marker_oids'")
    with pytest.raises(SchemaError, match="logical copy"):
        check_server(conn, SCHEMA)


def test_only_one_of_two_concurrent_rebases_is_done(conn, rebasing, copied):
    with psycopg.connect(conn.info.dsn) as purging, background() as go:
        purging.execute(PURGE)
        both = [go(rebasing, []) for _ in range(2)]
        waiting = "select count(*) from pg_locks where locktype in ('transactionid', 'tuple') and not granted"
        eventually(lambda: conn.execute(waiting).fetchone() == (2,))
        purging.commit()
        errors = [each.exception() for each in both]
    (error,) = [each for each in errors if each is not None]
    assert "is healthy" in str(error)
    check_server(conn, SCHEMA)


def test_a_rebase_waits_for_an_open_publisher_and_lets_others_publish_between_its_attempts(
    dsn, conn, rebasing, copied, monkeypatch
):
    monkeypatch.setattr(rebase, "LOCK_TIMEOUT", "50ms")
    said: list[str] = []
    with background() as go:
        with psycopg.connect(dsn, application_name="evil\n[bold]\u202eshop") as slow:
            publish(slow, 3)
            pid = slow.info.backend_pid
            done = go(rebasing, said)
            eventually(lambda: said)
            publish(conn, 4)
            assert not done.done()
        done.result()
    assert f"the transaction of pid {pid} (" in said[0]
    assert "\n" not in said[0]
    assert gets(conn, "default") == [1, 2, 3, 4]


def test_a_rebase_that_gives_up_names_prepared_transactions_too_and_has_changed_nothing(
    dsn, conn, rebasing, copied, monkeypatch
):
    monkeypatch.setattr(rebase, "LOCK_TIMEOUT", "50ms")
    before = cursors(conn)
    with psycopg.connect(dsn) as slow:
        publish(slow, 3)
        slow.execute("prepare transaction 'for gotten'")
    try:
        with pytest.raises(PartboxError, match=r"prepared transaction 'for gotten', open for .* nothing"):
            rebasing([], timeout=0)
    finally:
        conn.execute("commit prepared 'for gotten'")
    assert cursors(conn) == before
    rebasing([])
    assert gets(conn, "default") == [1, 2, 3]


def test_an_event_of_a_transaction_that_was_open_at_a_rebase_is_delivered(dsn, conn, outbox, copied):
    """One has drawn its xid before the rebase, and publishes after it, with an id above every cursor."""
    with psycopg.connect(dsn) as early:
        early.execute("select pg_current_xact_id()")
        outbox.rebase()
        publish(conn, 3)
        conn.execute("update partbox.partition set snapshot = pg_current_snapshot(), last_id = 3")
        publish(early, 4)
    assert gets(conn, "default") == [4]


def test_living_workers_are_named_and_nothing_is_changed(conn, dsn, rebasing, copied):
    before = cursors(conn)
    (alive,) = join(conn, node="node-a")
    stop = threading.Event()

    def beat() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            while not stop.wait(0.02):
                instances.renew_heartbeats(own, SCHEMA, {alive: False})

    with background() as go:
        go(beat)
        try:
            with pytest.raises(PartboxError, match=r"workers are running on schema 'partbox': 1 process \(node-a 1\)"):
                rebasing([])
        finally:
            stop.set()
    assert cursors(conn) == before


def test_a_rebase_watches_instance_rows_of_the_dump_for_a_lease_and_then_forgets_them(conn, rebasing, copied):
    join(conn, 2, node="node-a")
    conn.execute("update partbox.instance set lease = '300 ms', heartbeat_at = now() + interval '1 h' where pid = 1")
    conn.execute("update partbox.instance set heartbeat_at = now() - interval '1 h' where pid = 2")
    said: list[str] = []
    assert rebasing(said).instances == 2
    assert set(said) == {"new heartbeats of 1 process (node-a 1), which only running workers send"}
    assert conn.execute("select count(*) from partbox.instance").fetchone() == (0,)


def test_a_worker_that_joins_after_the_check_stops_a_rebase(conn, copied):
    before = cursors(conn)
    join(conn)
    assert rebase.rebase_schema(conn, SCHEMA, {}, force=True) == "workers"
    assert cursors(conn) == before


def test_owners_are_forgotten_and_epochs_raised(conn, rebasing, copied):
    conn.execute("update partbox.partition set owner = gen_random_uuid(), assignee = owner, suspect_until_id = 2")
    before = dict(rows(conn, "default", "partition, epoch"))
    rebasing([])
    found = rows(conn, "default", "partition, epoch, owner, assignee, suspect_until_id")
    assert all(epoch > before[partition] for partition, epoch, *_ in found)
    assert {tuple(rest) for _, _, *rest in found} == {(None, None, 2)}


def test_a_sequence_that_was_not_copied_is_raised_to_every_id_in_use(conn, rebasing, copied):
    conn.execute("insert into partbox.meta (key, value) values ('purged_id', 4711)")
    conn.execute("select setval('partbox.record_id_seq', 1, false)")
    done = rebasing([])
    assert (done.last_id, done.next_after) == (0, 4711)
    publish(conn, 3)
    assert gets(conn, "default") == [1, 2, 3]
    assert conn.execute("select max(id) from partbox.record").fetchone() == (4712,)


def test_a_schema_of_another_version_and_one_without_a_log_are_refused(conn, outbox, copied):
    conn.execute("update partbox.meta set value = '1' where key = 'schema_version'")
    with pytest.raises(SchemaError, match=r"made before partbox 0\.1\.0"):
        outbox.rebase()
    with pytest.raises(SchemaError, match="does not exist"):
        Outbox(outbox.dsn, schema="elsewhere").rebase()


def test_a_role_that_may_only_publish_is_refused(dsn, conn, outbox, copied):
    conn.execute("create role clerk_of_rebase login")
    try:
        conn.execute("grant usage on schema partbox to clerk_of_rebase")
        conn.execute("grant select on all tables in schema partbox to clerk_of_rebase")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            Outbox(psycopg.conninfo.make_conninfo(dsn, user="clerk_of_rebase")).rebase()
    finally:
        conn.execute("drop owned by clerk_of_rebase")
        conn.execute("drop role clerk_of_rebase")


def test_saves_and_replays_do_not_deadlock_with_a_rebase(dsn, conn, outbox, copied):
    """A transaction of a handler publishes first and locks partition rows last: the log is locked before those."""
    with psycopg.connect(dsn) as effects, background() as go:
        publish(effects, 3)
        done = go(outbox.rebase)
        waiting = "select count(*) from pg_locks where relation = 'partbox.record'::regclass and not granted"
        eventually(lambda: conn.execute(waiting).fetchone() == (1,))
        effects.execute("select from partbox.partition order by subscription, partition for no key update")
        effects.commit()
        done.result()
    assert gets(conn, "default") == [1, 2, 3]


def test_a_later_subscription_does_not_take_foreign_xids_of_old_records_for_late_commits(conn, outbox):
    publish(conn, 1, 2)
    conn.execute("update partbox.record set xid = '1099511629000'")  # which is in this cluster's future
    conn.execute("update partbox.partition set snapshot = '1099511629999:1099511629999:', last_id = 2, floor_id = 2")
    outbox.rebase()
    outbox.subscriptions.create("audit")
    assert gets(conn, "audit") == [1, 2]
    conn.execute("update partbox.partition set snapshot = pg_current_snapshot(), last_id = 2")  # as after a first page
    assert gets(conn, "audit") == []
