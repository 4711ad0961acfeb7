"""Every other cause, provoked in a real database: it is named, and a remedy that is SQL ends it."""

import time
from contextlib import ExitStack, closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from waiting import eventually

from partbox.doctor.doctor import LOOK_AGAIN, examine
from partbox.doctor.limits import Limits, limits_of
from partbox.settings import load

pytestmark = pytest.mark.usefixtures("brisk")

OLD = """
insert into partbox.record (partition, event_id, event_type, created_at)
select g % 256, gen_random_uuid(), 'Placed', now() - interval '9 days' from generate_series(1, {}) g
"""


def old(clinic, count: int) -> None:
    clinic.conn.execute(OLD.format(count).encode())


# Workers


def test_a_process_without_a_heartbeat_beside_a_living_one(clinic):
    clinic.ghost("node-a")
    clinic.ghost("node-b", lease="1 s")
    clinic.conn.execute("update partbox.instance set heartbeat_at = now() - interval '2 s' where node = 'node-b'")
    found = clinic.one("expired-process")
    assert found["severity"] == "warning"
    assert found["summary"] == "1 process without a heartbeat for longer than the lease"
    assert "process 4711 on node-b, heartbeat " in found["evidence"][0]
    clinic.conn.execute(
        "update partbox.partition p set owner = instance_id, assignee = instance_id from partbox.instance"
        " where node = 'node-b';"
        "update partbox.instance set heartbeat_at = now() - interval '1 min' where node = 'node-b'"
    )
    assert clinic.one("expired-process")["severity"] == "problem"  # nobody buries it


@pytest.mark.parametrize(
    ("assignee", "owner", "said"),
    [
        ("null", "null", "no node has planned them"),
        ("gen_random_uuid()", "null", "their assignee is gone, and no node has planned them anew"),
        ("gen_random_uuid()", "gen_random_uuid()", "their assignee is gone, and no node has planned them anew"),
    ],
)
@pytest.mark.every_version("asks the server's own tables")
def test_a_partition_that_nobody_plans(clinic, assignee, owner, said):
    clinic.ghost()
    clinic.conn.execute(
        "update partbox.partition p set owner = instance_id, assignee = instance_id from partbox.instance;"
        f"update partbox.partition set assignee = {assignee}, owner = {owner} where partition = 9".encode()
    )
    found = clinic.one("unowned")
    assert found["evidence"][0] == f"1 partition (9): {said}"
    assert "look at the log of `partbox worker` on node-ghost" in found["remedy"][0]


def test_a_handover_between_two_looks_is_not_taken_for_an_unowned_partition(clinic):
    clinic.ghost()
    waited = []

    def claim(seconds: float) -> None:
        waited.append(seconds)
        clinic.conn.execute(
            "update partbox.partition p set owner = instance_id, epoch = epoch + 1 from partbox.instance"
        )

    settings = load()
    assert examine(lambda: clinic.dsn, settings, Limits(), wait=claim).healthy
    assert (waited, LOOK_AGAIN) == ([0.0], 3.0)  # without `brisk`: a handover takes less than a second
    clinic.conn.execute("update partbox.partition set owner = null")
    assert not examine(lambda: clinic.dsn, settings, Limits(), wait=lambda seconds: None).healthy


def test_a_partition_that_moved_twice_between_two_looks_is_not_taken_for_unowned(clinic):
    clinic.ghost()
    moved = "update partbox.partition set epoch = epoch + 1"
    looked = examine(lambda: clinic.dsn, load(), Limits(), wait=lambda seconds: clinic.conn.execute(moved.encode()))
    assert looked.healthy


def test_a_subscription_that_nobody_works_on_can_be_dropped(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    clinic.run("subscription", "create", "audit log")
    clinic.plant.publish("7")
    clinic.plant.consume()
    clinic.conn.execute("update partbox.partition set last_id = 0, floor_id = 0, snapshot = '1:1:' where owner is null")
    found = clinic.one("no-workers")
    assert found["subscription"] == "audit log"
    assert "`partbox worker MODULE:OUTBOX --subscription 'audit log'`" in found["remedy"][0]
    clinic.follow(f"{found['remedy'][1][:-1]} --yes`")
    assert clinic.findings() == []


def test_a_partition_without_progress(clinic):
    clinic.ghost()
    clinic.conn.execute(
        "update partbox.partition p set owner = instance_id, claimed_at = now() - interval '1 h',"
        " saved_at = now() - interval '10 min' from partbox.instance"
    )
    assert clinic.findings() == []
    clinic.plant.publish("7")
    assert clinic.findings() == []
    clinic.conn.execute("update partbox.record set created_at = now() - interval '5 min'")
    found = clinic.one("stalled")
    assert "the oldest record published 5 m ago" in found["evidence"][0]
    assert "owned by process 4711 on node-ghost" in found["evidence"][1]


def test_workers_of_two_versions(clinic):
    clinic.ghost("a", version="0.1.0")
    clinic.ghost("b", version="0.2.0")
    clinic.conn.execute("update partbox.partition set owner = (select instance_id from partbox.instance limit 1)")
    assert clinic.one("mixed-versions")["evidence"] == ["version 0.1.0 on a", "version 0.2.0 on b"]


@pytest.mark.parametrize(("ahead", "said"), [(60, "60 s ahead of"), (-60, "60 s behind"), (1, None)])
@pytest.mark.every_version("asks the server's own tables")
def test_a_clock_that_differs(clinic, ahead, said):
    report = examine(lambda: clinic.dsn, load(), Limits(), clock=lambda: time.time() + ahead)
    found = [each.summary for each in report.findings if each.cause == "clock-skew"]
    assert found == ([f"this host's clock is {said} the database's"] if said else [])


# Records


def test_a_dead_record_that_blocks(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    head = clinic.plant.park("7", "dead", blocks=True)
    clinic.plant.park("7", "held", blocks=True)
    found = clinic.one("blocked-by-dead")
    assert found["evidence"][0].startswith(f"Order 7: record {head} (Placed) dead, 10 attempts, 1 event behind it")
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


def test_a_key_that_has_only_just_failed_is_not_said_to_be_blocked(clinic):
    clinic.plant.park("7", "retrying", blocks=True, attempts=2, due=1, age=1)
    assert "blocked-key" not in clinic.causes()
    clinic.plant.park("8", "retrying", blocks=True, attempts=2, due=1, age=90)
    assert clinic.one("blocked-key")["evidence"][0].startswith("Order 8: ")
    clinic.conn.execute("update partbox.parked set attempts = 3, parked_at = now()")
    assert len(clinic.one("blocked-key")["evidence"]) == 2


def test_dead_records_that_are_no_flood_wait_for_a_decision(clinic):
    clinic.plant.park("7", error="SmtpError: to ada@example.org", age=600)
    clinic.plant.park("8", error="SmtpError: to bob@example.org", age=9_000)
    clinic.plant.park("9", error="no such customer", event_type="-Odd type", age=600)
    found = clinic.one("dead")
    assert found["severity"] == "warning"
    assert found["evidence"] == [
        "1 of type Placed: SmtpError: to bob@example.org (the newest is record 2, 10 m ago)",
        "1 of type -Odd type: no such customer (the newest is record 3, 10 m ago)",
    ]
    assert clinic.doctor()[0] == 0
    assert clinic.doctor("--strict")[0] == 1
    clinic.follow(found["remedy"][2])
    assert clinic.number("select count(*) from partbox.parked") == 2


def test_a_braked_partition(clinic, monkeypatch):
    monkeypatch.setenv("PARTBOX_MAX_PARKED", "10")
    for _ in range(8):
        clinic.plant.park("7", "held", blocks=True, age=1)
    clinic.plant.park("7", "dead")
    assert "braked" not in clinic.causes()
    clinic.plant.park("7", "held", blocks=True, age=1)
    found = clinic.one("braked")
    assert found["summary"] == "1 partition braked: nothing new is read there"
    assert found["evidence"] == ["up to 9 open parked records in one; max_parked = 10"]


def test_many_deferred_events(clinic):
    clinic.work()
    clinic.owned()
    for number in range(60):
        clinic.plant.publish(str(number), event_type="Sent")
    eventually(lambda: clinic.number("select count(*) from partbox.parked where state = 'deferred'") >= 50)
    found = clinic.one("deferred")
    assert " of type Sent, for " in found["evidence"][0]
    assert "waits for its downstream" in found["evidence"][0]


@pytest.mark.parametrize("attempts", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_a_record_that_kills_its_process(clinic, attempts):
    """The one node of processes without `--soak`: threads would take the tests with them."""
    clinic.node(max_attempts=attempts, retry="fixed:0.1")
    clinic.owned()
    clinic.plant.publish("7", event_type="Deadly")
    seen: dict[str, dict] = {}

    def known() -> bool:
        seen.update({each["cause"]: each for each in clinic.findings()})
        return "dead" in seen

    eventually(known, 60, 0.2)
    assert "crashes" in seen
    assert f"its process died, {attempts} times that it ran" in seen["dead"]["evidence"][0]


def test_a_backlog_that_grows(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id, claimed_at = now() from partbox.instance")
    old(clinic, 1_200)
    clinic.conn.execute("update partbox.record set created_at = now() - interval '2 min'")
    settings, publish = load(), lambda seconds: old(clinic, 300)
    (found,) = [
        each
        for each in examine(lambda: clinic.dsn, settings, Limits(), wait=publish).findings
        if each.cause == "backlog-grows"
    ]
    assert found.evidence[0].startswith("1,500 pending, ")
    again = examine(lambda: clinic.dsn, settings, Limits(), wait=lambda seconds: None)
    assert "backlog-grows" not in [each.cause for each in again.findings]


# Other people's sessions


@pytest.mark.every_version("asks the server's own tables")
def test_a_transaction_that_has_published_and_stays_open(clinic):
    with clinic.session("checkout") as other:
        clinic.plant.outbox.publish(other, "Placed", {"card": "4111-1111"})
        found = clinic.one("open-publisher", "--transactions-over", "0s")
        assert clinic.causes("--transactions-over", "0s") == ["open-publisher"]
        assert "application checkout" in found["evidence"][0]
        assert "4111" not in str(found)
        assert "has written events that nobody can see, or deliver, before it commits" in found["evidence"]


@pytest.mark.every_version("asks the server's own tables")
def test_a_long_statement_is_a_warning(clinic):
    with closing(clinic.session("reports")) as other:
        pid = other.info.backend_pid
        other.execute("create temporary table t (n int)")  # draws a transaction id
        other.pgconn.send_query(b"select pg_sleep(60), 'payload'")
        found = clinic.one("long-transaction", "--transactions-over", "0s")
        assert found["severity"] == "warning"
        assert "select pg_sleep(60), …" in found["evidence"][0]
        assert found["remedy"] == [f"let its application commit; or end it: `select pg_terminate_backend({pid})`"]
        clinic.follow(found["remedy"][0])


@pytest.mark.every_version("asks the server's own tables")
def test_a_transaction_of_another_database_counts_if_it_writes(clinic, dsn):
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), application_name="elsewhere") as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from pg_class")
        assert clinic.causes("--transactions-over", "0s") == []
        other.execute("select pg_current_xact_id()")
        found = clinic.one("idle-transaction", "--transactions-over", "0s")
        assert "in database postgres" in found["evidence"][1]


@pytest.mark.every_version("asks the server's own tables")
def test_a_forgotten_prepared_transaction(clinic):
    with clinic.session("bank") as other:
        other.autocommit = True
        other.execute("begin")
        other.execute("select pg_current_xact_id()")
        other.execute("prepare transaction 'two''phase'")
    try:
        found = clinic.one("prepared-transaction", "--transactions-over", "0s")
        assert clinic.causes() == []
        assert "gid two'phase, owner " in found["evidence"][0]
        assert found["remedy"][0].endswith("`commit prepared 'two''phase'` or `rollback prepared 'two''phase'`")
    finally:
        clinic.conn.execute("rollback prepared 'two''phase'")
    assert clinic.causes("--transactions-over", "0s") == []


@pytest.mark.every_version("asks the server's own tables")
def test_a_replication_slot_that_nobody_uses(clinic):
    clinic.conn.execute("select pg_create_physical_replication_slot('old_standby', true)")
    try:
        found = clinic.one("replication-slot")
        assert found["summary"] == "replication slot old_standby is not in use"
        assert "MiB of WAL" in found["evidence"][0]
        clinic.follow(found["remedy"][0])
        assert clinic.causes() == []
    finally:
        clinic.conn.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")


@pytest.mark.every_version("asks the server's own tables")
def test_who_waits_for_a_lock_on_our_tables_and_for_whom(clinic):
    with closing(clinic.session("holder")) as holder, closing(clinic.session("waiter")) as waiter:
        holder.execute("update partbox.partition set saved_at = now() where partition = 7")
        waiter.pgconn.send_query(b"update partbox.partition set saved_at = now() where partition = 7")
        found = eventually(
            lambda: [each for each in clinic.findings("--transactions-over", "0s") if each["cause"] == "locks"]
        )
        (wait,) = found[0]["evidence"]
        assert f"pid {waiter.info.backend_pid} (waiter) waits for " in wait
        assert f"on partition, for pid {holder.info.backend_pid}: update partbox.partition" in wait
        assert found[0]["remedy"] == [
            f"let it end its transaction, or end it: `select pg_terminate_backend({holder.info.backend_pid})`"
        ]
        clinic.follow(found[0]["remedy"][0])


@pytest.mark.parametrize("table", ["partition", "parked", "record", "meta", "subscription"])
@pytest.mark.every_version("asks the server's own tables")
def test_a_table_that_somebody_has_locked(clinic, table):
    """Doctor does not wait for it long, and says what it could not see."""
    with clinic.session("migration") as holder:
        holder.execute(f"lock table partbox.{table} in access exclusive mode".encode())
        code, said = clinic.doctor("--transactions-over", "0s")
        assert code == 1
        causes = {each["cause"]: each for each in said["findings"]}
        assert "application migration" in " ".join(causes["locks"]["evidence"])
        assert "lock timeout" in " ".join(causes["not-seen"]["evidence"])


# The server and the log


@pytest.mark.every_version("asks the server's own tables")
def test_autovacuum_that_is_off_for_a_hot_table(clinic):
    clinic.conn.execute("alter table partbox.partition set (autovacuum_enabled = off)")
    found = clinic.one("autovacuum")
    assert found["summary"] == "autovacuum is off for partition"
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


@pytest.mark.every_version("asks the server's own tables")
def test_a_bloated_table(clinic):
    with closing(clinic.session("report")) as other:
        pid = other.info.backend_pid
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from partbox.meta")
        for _ in range(160):
            clinic.conn.execute("update partbox.partition set saved_at = clock_timestamp()")
    eventually(lambda: clinic.number(f"select count(*) from pg_stat_activity where pid = {pid}") == 0)
    found = clinic.one("bloat")
    assert found["summary"].startswith("table partition is bloated: ")
    clinic.follow(found["remedy"][1])
    assert clinic.causes() == []


def test_a_role_behind_a_pooler_without_its_settings(clinic, monkeypatch):
    monkeypatch.setenv("PARTBOX_POOLER", "1")
    found = clinic.one("pooled-role")
    assert "statement_timeout = 0" in found["evidence"]
    name = clinic.conn.info.user
    try:
        for remedy in found["remedy"]:
            clinic.follow(remedy)
        assert clinic.causes() == []
    finally:
        clinic.conn.execute(f'alter role "{name}" in database "{clinic.conn.info.dbname}" reset all'.encode())


@pytest.mark.every_version("asks the server's own tables")
def test_connections_that_are_nearly_used_up(clinic):
    with ExitStack() as stack:
        most = clinic.number("show max_connections")
        used = clinic.number("select sum(numbackends) from pg_stat_database")
        for _ in range(int(most * 0.9) - used):
            stack.enter_context(clinic.session("hoarder"))
        found = clinic.one("connections")
    assert f"of {most - 3} connections are in use" in found["summary"]
    eventually(lambda: clinic.causes() == [])


@pytest.mark.every_version("asks the server's own tables")
def test_a_logical_copy(clinic):
    clinic.conn.execute("update partbox.meta set value = null where key = 'marker'")  # as written by somebody else
    assert clinic.one("copied")["severity"] == "problem"


def test_a_logical_copy_with_the_transaction_id_of_the_original(clinic):
    clinic.conn.execute("update partbox.meta set value = '16384 16385' where key = 'marker_oids'")
    assert clinic.one("copied")["severity"] == "problem"


@pytest.mark.every_version("asks the server's own tables")
def test_a_saved_snapshot_of_another_server(clinic):
    clinic.conn.execute("update partbox.partition set snapshot = '4000000000:4000000000:' where partition = 3")
    assert "copied" in clinic.causes()


@pytest.mark.every_version("asks the server's own tables")
def test_a_sequence_that_was_set_back(clinic):
    for _ in range(5):
        clinic.plant.publish("7")
    clinic.plant.consume()
    assert clinic.causes() == []
    clinic.conn.execute("select setval('partbox.record_id_seq', 2)")
    found = clinic.one("cursor-ahead")
    assert found["summary"] == "its cursors are at id 5, the sequence is at 2"
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []
    clinic.plant.publish("7")
    assert clinic.number("select max(id) from partbox.record") == 6


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("alter sequence partbox.record_id_seq cache 32", "cached by 32"),
        ("alter sequence partbox.record_id_seq increment by -1 maxvalue 9", "goes by -1"),
        ("alter sequence partbox.record_id_seq cycle", "begin again"),
        ("alter sequence partbox.record_id_seq owned by partbox.record.id", "is owned by a column of partbox.record"),
        ("alter table partbox.record alter id set default nextval('partbox.record_id_seq')", "record.id has another"),
        ("alter table partbox.record alter id drop default", "record.id has another default"),
        ("alter table partbox.record alter xid drop default", "record.xid has another default"),
    ],
)
@pytest.mark.every_version("asks the server's own tables")
def test_ids_that_are_drawn_otherwise(clinic, harm, said):
    clinic.conn.execute(harm.encode())
    found = clinic.one("sequence")
    assert said in found["evidence"][0]
    for remedy in found["remedy"]:
        clinic.follow(remedy)
    assert clinic.causes() == []


def test_a_last_segment_that_is_nearly_full(clinic):
    clinic.conn.execute("select setval('partbox.record_id_seq', 9500000)")
    found = clinic.one("segments")
    assert found["evidence"] == ["it ends before id 10,000,000; the newest id is 9,500,000"]
    for remedy in found["remedy"]:
        clinic.follow(remedy)
    clinic.conn.execute("set lock_timeout = 0")
    assert clinic.causes() == []
    clinic.conn.execute("select setval('partbox.record_id_seq', 10000000)")
    clinic.plant.publish("7")
    assert clinic.number("select count(*) from only partbox.record_default") == 0


def test_a_default_segment_that_holds_old_records_is_no_trouble_while_the_last_segment_is_young(clinic):
    clinic.conn.execute("select setval('partbox.record_id_seq', 10000005)")
    clinic.plant.publish("7")
    for remedy in clinic.one("segments")["remedy"]:
        clinic.follow(remedy)
    clinic.conn.execute("select setval('partbox.record_id_seq', 12500000)")
    assert "segments" not in clinic.causes()
    clinic.conn.execute("select setval('partbox.record_id_seq', 21500000)")
    assert "segments" in clinic.causes()


def test_a_second_look_that_cannot_be_had_costs_none_of_the_evidence(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition set owner = null")
    with psycopg.connect(clinic.dsn) as migrating:
        looked = examine(
            lambda: clinic.dsn,
            load(),
            Limits(),
            wait=lambda seconds: migrating.execute("lock table partbox.partition in access exclusive mode"),
        )
    causes = {finding.cause for finding in looked.findings}
    assert {"unowned", "not-seen"} <= causes


def test_a_default_segment_that_holds_records(clinic):
    clinic.conn.execute("select setval('partbox.record_id_seq', 10000005)")
    clinic.plant.publish("7")
    found = clinic.one("segments")
    assert "the default segment holds records" in found["evidence"]
    for remedy in found["remedy"]:
        clinic.follow(remedy)
    clinic.conn.execute("select setval('partbox.record_id_seq', 12000005)")
    clinic.plant.publish("7")
    assert clinic.number("select count(*) from only partbox.record_default") == 1


def test_a_subscription_that_keeps_the_log_from_being_purged(clinic):
    old(clinic, 300)
    clinic.run("subscription", "pause", "default")
    found = clinic.one("purge")
    assert found["summary"] == "it keeps records from being purged that are up to 9 d old"
    assert found["evidence"] == ["256 partitions; retention 7 d", "it is paused"]


def test_a_floor_that_keeps_the_log_from_being_purged(clinic):
    old(clinic, 300)
    clinic.plant.consume()
    clinic.ghost()
    clinic.conn.execute("update partbox.partition set floor_id = 0, owner = (select instance_id from partbox.instance)")
    assert "a transaction that was open at its last save may still write" in clinic.one("purge")["evidence"][1]


def test_records_that_nobody_has_purged(clinic):
    old(clinic, 300)
    clinic.plant.consume()
    found = clinic.one("purge")
    assert found["summary"] == "records of 9 d ago, which nobody needs, have not been purged"
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


def test_old_records_that_are_parked_are_kept_with_reason(clinic):
    clinic.plant.park("7", age=9 * 86_400)
    clinic.conn.execute("update partbox.record set created_at = now() - interval '9 days'")
    assert clinic.causes() == ["dead"]


def test_limits_follow_the_settings():
    settings = load(flags={}, retain_done="1d", purge_interval="2h", max_parked=50, pooler=True)
    limits = limits_of(settings, 5.0)
    assert (limits.overdue, limits.braked, limits.pooler, limits.lock_wait) == (86_400 + 3 * 7_200, 45, True, 5.0)
