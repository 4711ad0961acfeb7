"""Other people's sessions, provoked in a real database: who holds things up is named, and a remedy in SQL ends it."""

from contextlib import closing

import psycopg
import pytest
from full_notification_queue import crowd
from psycopg.conninfo import make_conninfo
from waiting import eventually

pytestmark = pytest.mark.usefixtures("brisk")


@pytest.mark.every_version("asks the server's own tables")
def test_a_transaction_that_has_published_and_stays_open_is_a_finding(clinic):
    with clinic.session("checkout") as other:
        clinic.plant.outbox.publish(other, "Placed", {"card": "sesame"})
        found = clinic.one("open-publisher", over=0.0)
        assert clinic.causes(over=0.0) == ["open-publisher"]
        assert "application checkout" in found["evidence"][0]
        assert "sesame" not in str(found)
        assert "has written events that nobody can see or deliver before it commits" in str(found["evidence"])


@pytest.mark.every_version("asks the server's own tables")
def test_a_long_statement_is_a_warning(clinic):
    with closing(clinic.session("reports")) as other:
        pid = other.info.backend_pid
        other.execute("create temporary table t (n int)")  # draws a transaction id
        other.pgconn.send_query(b"select pg_sleep(60), 'payload'")
        found = clinic.one("long-transaction", over=0.0)
        assert found["severity"] == "warning"
        assert "select pg_sleep(60), …" in found["evidence"][0]
        assert found["remedy"] == [f"let the application commit, or end it: `select pg_terminate_backend({pid})`"]
        clinic.follow(found["remedy"][0])


@pytest.mark.parametrize(
    ("taken", "what", "severity"),
    [
        ("select from partbox.subscription for no key update", "subscription", "problem"),
        ("select partbox.locked('purge')", "meta", "warning"),
        ("select pg_advisory_lock(hashtextextended('partbox.migrate partbox', 0))", "the first migration", "warning"),
        ("select pg_advisory_lock(hashtext('partbox.import partbox'), 1)", "imports", "warning"),
    ],
)
@pytest.mark.every_version("asks the server's own tables")
def test_a_session_that_keeps_an_exclusive_advisory_lock_of_ours_is_named(clinic, monkeypatch, taken, what, severity):
    monkeypatch.setattr("partbox.doctor.limits.Limits.lock_wait", 0.0)
    with closing(clinic.session("curious")) as other:
        other.execute(taken)
        found = clinic.one("kept-lock")
        assert found["severity"] == severity
        assert found["summary"].startswith(f"pid {other.info.backend_pid} has held the lock of {what} for ")
        assert "application curious" in found["evidence"][0]
        clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


@pytest.mark.parametrize("name", ["forgotten", "partbox listener"])
def test_a_session_that_keeps_the_notification_queue_from_being_emptied_is_named(crowded_clinic, crowded_dsn, name):
    with crowd(crowded_dsn, name) as pid:
        found = crowded_clinic.one("notification-queue")
        assert found["severity"] == "problem"
        assert f"pid {pid}" in found["evidence"][0]
        ends = f"select pg_terminate_backend({pid})" in str(found)
        assert ends == (name == "forgotten"), "a worker's own listener is not to be ended"
    assert crowded_clinic.causes() == []


@pytest.mark.every_version("asks the server's own tables")
def test_a_transaction_of_another_database_counts_if_it_writes(clinic, dsn):
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), application_name="elsewhere") as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from pg_class")
        assert clinic.causes(over=0.0) == []
        other.execute("select pg_current_xact_id()")
        found = clinic.one("idle-transaction", over=0.0)
        assert "in database postgres" in found["evidence"][1]


@pytest.mark.every_version("asks the server's own tables")
def test_a_forgotten_prepared_transaction_is_a_finding(clinic):
    with clinic.session("bank") as other:
        other.autocommit = True
        other.execute("begin")
        other.execute("select pg_current_xact_id()")
        other.execute("prepare transaction 'two''phase'")
    try:
        found = clinic.one("prepared-transaction", over=0.0)
        assert clinic.causes() == []
        assert "gid two'phase, owner " in found["evidence"][0]
        assert found["remedy"][0].endswith("`commit prepared 'two''phase'` or `rollback prepared 'two''phase'`")
    finally:
        clinic.conn.execute("rollback prepared 'two''phase'")
    assert clinic.causes(over=0.0) == []


@pytest.mark.every_version("asks the server's own tables")
def test_an_unused_replication_slot_is_a_finding(clinic):
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
def test_a_session_that_waits_for_a_lock_on_our_tables_is_named_with_the_holder(clinic):
    with closing(clinic.session("holder")) as holder, closing(clinic.session("waiter")) as waiter:
        holder.execute("update partbox.partition set saved_at = now() where partition = 7")
        waiter.pgconn.send_query(b"update partbox.partition set saved_at = now() where partition = 7")
        found = eventually(lambda: [each for each in clinic.findings(over=0.0) if each["cause"] == "locks"])
        (wait,) = found[0]["evidence"]
        assert f"pid {waiter.info.backend_pid} (waiter) has waited " in wait
        assert f"for partition, blocked by pid {holder.info.backend_pid}: update partbox.partition" in wait
        assert found[0]["remedy"] == [
            f"let it end its transaction, or end it: `select pg_terminate_backend({holder.info.backend_pid})`"
        ]
        clinic.follow(found[0]["remedy"][0])


@pytest.mark.every_version("asks the server's own tables")
def test_a_locked_table_is_a_finding(clinic):
    """Doctor does not wait for it long, and says what it could not see."""
    with clinic.session("migration") as holder:
        for table in ("partition", "parked", "record", "meta", "subscription"):
            holder.execute(f"lock table partbox.{table} in access exclusive mode".encode())
            code, said = clinic.doctor("--transactions-over", "0s")
            assert code == 1, table
            causes = {each["cause"]: each for each in said["findings"]}
            assert "application migration" in " ".join(causes["locks"]["evidence"]), table
            assert "lock timeout" in " ".join(causes["not-seen"]["evidence"]), table
            holder.rollback()
