"""The server, the ids and the log, their troubles provoked in a real database: named, and a remedy in SQL ends them."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest
from waiting import eventually

from partbox.doctor.checks import server
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import Limits, limits_of
from partbox.settings import load

pytestmark = pytest.mark.usefixtures("brisk")


@pytest.mark.every_version("asks the server's own tables")
def test_disabled_autovacuum_of_a_hot_table_is_a_finding(clinic):
    clinic.conn.execute("alter table partbox.partition set (autovacuum_enabled = off)")
    found = clinic.one("autovacuum")
    assert found["summary"] == "autovacuum is off for partition"
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


@pytest.mark.parametrize("part", [16, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.every_version("asks the server's own tables")
def test_a_bloated_table_is_a_finding(clinic, monkeypatch, part):
    monkeypatch.setattr(server, "ROW_BYTES", server.ROW_BYTES // part)
    monkeypatch.setattr(server, "SMALL_TABLE", server.SMALL_TABLE // part)
    assert clinic.causes() == []
    with closing(clinic.session("report")) as other:
        pid = other.info.backend_pid
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 1 from partbox.meta")
        for _ in range(160 // part):
            clinic.conn.execute("update partbox.partition set saved_at = clock_timestamp()")
    eventually(lambda: clinic.number(f"select count(*) from pg_stat_activity where pid = {pid}") == 0)
    found = clinic.one("bloat")
    assert found["summary"].startswith("table partition is bloated: ")
    clinic.follow(found["remedy"][1])
    assert clinic.causes() == []


def test_a_role_behind_a_pooler_without_its_settings_is_a_finding(clinic, monkeypatch):
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


@pytest.mark.every_version("asks the server's own settings")
def test_the_reason_why_workers_are_not_woken_is_a_note(clinic, run, monkeypatch):
    def said() -> list[str]:
        _, report = clinic.doctor()
        found = [each for each in report["findings"] if each["cause"] == "bell"]
        assert all(each["severity"] == "note" for each in found)
        return [line for each in found for line in each["evidence"]]

    assert "max_prepared_transactions = 20" in said()[0]
    monkeypatch.setenv("PARTBOX_BELL", "on")
    assert said() == []
    monkeypatch.setenv("PARTBOX_POOLER", "1")
    assert "set `listen_dsn`" in said()[0]
    monkeypatch.setenv("PARTBOX_LISTEN_DSN", clinic.dsn)
    assert said() == []
    monkeypatch.setenv("PARTBOX_BELL", "off")
    assert said() == []


@pytest.mark.parametrize("used_up", [0.2, pytest.param(0.9, marks=pytest.mark.soak)])
@pytest.mark.every_version("asks the server's own tables")
def test_nearly_exhausted_connections_are_a_finding(clinic, monkeypatch, used_up):
    monkeypatch.setattr(server, "SLOTS_USED", used_up)
    with ExitStack() as stack:
        most = clinic.number("show max_connections")
        used = clinic.number("select sum(numbackends) from pg_stat_database")
        for _ in range(int(most * used_up) - used):
            stack.enter_context(clinic.session("hoarder"))
        found = clinic.one("connections")
    assert f"of {most - 3} connections are in use" in found["summary"]
    eventually(lambda: clinic.causes() == [])


@pytest.mark.every_version("asks the server's own tables")
def test_a_logical_copy_is_a_finding(clinic):
    clinic.conn.execute("update partbox.meta set value = null where key = 'marker'")  # as written by somebody else
    assert clinic.one("copied")["severity"] == "problem"


def test_a_logical_copy_with_the_transaction_id_of_the_original_is_a_finding(clinic):
    clinic.conn.execute("update partbox.meta set value = '16384 16385' where key = 'marker_oids'")
    assert clinic.one("copied")["severity"] == "problem"


@pytest.mark.every_version("asks the server's own tables")
def test_a_saved_snapshot_of_another_server_is_a_finding(clinic):
    clinic.conn.execute("update partbox.partition set snapshot = '4000000000:4000000000:' where partition = 3")
    assert "copied" in clinic.causes()


@pytest.mark.every_version("asks the server's own tables")
def test_a_sequence_that_was_set_back_is_a_finding(clinic):
    for _ in range(5):
        clinic.plant.publish("7")
    clinic.plant.consume()
    clinic.plant.publish("7")
    clinic.plant.publish("7")
    clinic.conn.execute("select setval('partbox.record_id_seq', 2)")
    found = clinic.one("sequence-behind")
    assert found["summary"] == "ids up to 7 are used, the sequence is at 2"
    clinic.follow(found["remedy"][0])
    assert "sequence-behind" not in clinic.causes()
    clinic.plant.publish("7")
    assert clinic.number("select max(id) from partbox.record") == 8


@pytest.mark.every_version("asks the server's own tables")
def test_events_with_ids_that_cursors_have_passed_are_a_finding(clinic):
    for _ in range(5):
        clinic.plant.publish("7")
    clinic.plant.consume()
    clinic.conn.execute("delete from partbox.record where id > 2")
    clinic.conn.execute("select setval('partbox.record_id_seq', 2)")
    for _ in range(5):
        clinic.plant.publish("7")
    found = clinic.one("hidden")
    assert found["summary"] == "3 records got ids that cursors had passed, and would never be delivered"
    assert found["evidence"] == ["their ids lie between 3 and 5"]
    clinic.follow(found["remedy"][0])
    assert "hidden" not in clinic.causes()
    assert clinic.number("select count(*) from partbox.record_status where status = 'pending'") == 5


NO_DEFAULT = ("alter table partbox.record alter id drop default", "record.id has another default")
HARMS = [
    ("alter sequence partbox.record_id_seq increment by -1 maxvalue 9", "increases by -1"),
    ("alter sequence partbox.record_id_seq cache 32", "caches 32 ids"),
    ("alter sequence partbox.record_id_seq cycle", "begin again"),
    ("alter sequence partbox.record_id_seq owned by partbox.record.id", "is owned by a column of partbox.record"),
    ("alter table partbox.record alter id set default nextval('partbox.record_id_seq')", "record.id has another"),
    ("alter table partbox.record alter xid drop default", "record.xid has another default"),
]
ALONE = [pytest.param([each], id=each[1], marks=pytest.mark.soak) for each in HARMS]


@pytest.mark.parametrize(
    "harms", [pytest.param(HARMS, id="together"), pytest.param([NO_DEFAULT], id="no default"), *ALONE]
)
@pytest.mark.every_version("asks the server's own tables")
def test_a_sequence_with_altered_options_is_a_finding(clinic, harms):
    for harm, _ in harms:
        clinic.conn.execute(harm.encode())
    found = clinic.one("sequence")
    for (harm, said), evidence in zip(harms, found["evidence"], strict=True):
        assert said in evidence, harm
    for remedy in found["remedy"]:
        clinic.follow(remedy)
    assert clinic.causes() == []


def test_a_last_segment_that_is_nearly_full_is_a_finding(clinic):
    clinic.conn.execute("select setval('partbox.record_id_seq', 9500000)")
    found = clinic.one("segments")
    assert found["evidence"] == ["the last segment ends before id 10,000,000; the newest id is 9,500,000"]
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []
    clinic.conn.execute("select setval('partbox.record_id_seq', 11000000)")
    clinic.plant.publish("7")
    assert clinic.number("select count(*) from only partbox.record_default") == 0


def test_old_records_in_the_default_segment_are_no_finding_while_the_last_segment_is_young(clinic):
    clinic.conn.execute("select setval('partbox.record_id_seq', 10000005)")
    clinic.plant.publish("7")
    clinic.follow(clinic.one("segments")["remedy"][0])
    clinic.conn.execute("select setval('partbox.record_id_seq', 12500000)")
    assert "segments" not in clinic.causes()
    clinic.conn.execute("select setval('partbox.record_id_seq', 17500000)")
    assert "segments" in clinic.causes()


def test_a_segment_that_was_begun_and_not_finished_is_a_finding(clinic):
    clinic.conn.execute("select partbox.segment_exclude(12000000, 14000000)")
    found = clinic.one("segments")
    assert (
        found["summary"] == "the segment from id 12,000,000 was begun but is missing: publishing would fail at that id"
    )
    clinic.conn.execute("select setval('partbox.record_id_seq', 9000000)")
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


@pytest.fixture
def ddl_log(clinic) -> Iterator[None]:
    """An event trigger that fails where segments are made: it does not name the schema of its table."""
    clinic.conn.execute("create table ddl_log (tag text)")
    body = "begin insert into ddl_log select tg_tag; end"
    clinic.conn.execute(f"create function log_ddl() returns event_trigger language plpgsql as $${body}$$")
    clinic.conn.execute("create event trigger ddl_log on ddl_command_end execute function log_ddl()")
    yield
    clinic.conn.execute("drop event trigger if exists ddl_log")


def test_an_event_trigger_that_keeps_segments_from_being_made_is_named_with_the_error(clinic, ddl_log):
    assert clinic.run("purge")[0] == 1
    found = clinic.one("segments")
    assert found["summary"] == "segments of the log are not made ahead of need: 0 of 3"
    assert 'changing a segment failed: relation "ddl_log" does not exist' in found["evidence"]
    named = "an event trigger runs when a segment is made: ddl_log (ddl_command_end, public.log_ddl())"
    assert named in found["evidence"]
    assert "`alter function public.log_ddl() set search_path = …`" in found["remedy"][0]
    clinic.conn.execute("alter function log_ddl() set search_path = public")
    clinic.follow(found["remedy"][1])
    assert clinic.causes() == []


def test_an_event_trigger_is_suspected_before_any_attempt_to_make_segments(clinic, ddl_log):
    assert clinic.one("segments")["summary"] == "segments of the log are not made ahead of need: 0 of 3"


def test_segments_that_cannot_be_made_are_reported_whatever_the_reason(clinic):
    body = "begin raise exception 'out of order'; end"
    made = "create or replace function partbox.segment_add(lower bigint, upper bigint) returns text language plpgsql"
    clinic.conn.execute(f"{made} as $${body}$$")
    assert clinic.run("purge")[0] == 1
    assert clinic.one("segments")["evidence"][-1] == "changing a segment failed: out of order"


def test_a_failed_second_examination_loses_none_of_the_evidence(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition set owner = null")
    with psycopg.connect(clinic.dsn) as migrating:
        looked = examine_outbox(
            lambda: clinic.dsn,
            load(),
            Limits(),
            wait=lambda seconds: migrating.execute("lock table partbox.partition in access exclusive mode"),
        )
    causes = {finding.cause for finding in looked.findings}
    assert {"unowned", "not-seen"} <= causes


def test_a_default_segment_that_holds_records_is_a_finding(clinic):
    clinic.conn.execute("select setval('partbox.record_id_seq', 10000005)")
    clinic.plant.publish("7")
    found = clinic.one("segments")
    assert "the default segment holds records" in found["evidence"]
    clinic.follow(found["remedy"][0])
    clinic.conn.execute("select setval('partbox.record_id_seq', 12000005)")
    clinic.plant.publish("7")
    assert clinic.number("select count(*) from only partbox.record_default") == 1


def test_a_subscription_that_keeps_the_log_from_being_purged_is_a_finding(clinic):
    clinic.old(300)
    clinic.run("subscription", "pause", "default")
    found = clinic.one("purge")
    assert found["summary"] == "the subscription keeps records up to 9 d old from being purged"
    assert found["evidence"] == ["256 partitions; retention 7 d", "it is paused"]


def test_a_floor_that_keeps_the_log_from_being_purged_is_a_finding(clinic):
    clinic.old(300)
    clinic.plant.consume()
    clinic.ghost()
    clinic.conn.execute("update partbox.partition set floor_id = 0, owner = (select instance_id from partbox.instance)")
    assert "a transaction that was open at its last save may still write" in clinic.one("purge")["evidence"][1]


def test_records_that_are_overdue_for_a_purge_are_a_finding(clinic):
    clinic.old(300)
    clinic.plant.consume()
    found = clinic.one("purge")
    assert found["summary"] == "records up to 9 d old, which nobody needs, have not been purged"
    clinic.follow(found["remedy"][0])
    assert clinic.causes() == []


def test_old_records_that_are_kept_because_they_are_parked_are_no_finding(clinic):
    clinic.plant.park("7", age=9 * 86_400)
    clinic.conn.execute("update partbox.record set created_at = now() - interval '9 days'")
    assert clinic.causes() == ["dead"]


def test_thresholds_of_doctor_follow_the_settings():
    settings = load(flags={}, retain_done="1d", purge_interval="2h", max_parked=50, pooler=True)
    limits = limits_of(settings, 5.0)
    found = (limits.overdue_age, limits.brake_threshold, limits.pooler, limits.lock_wait)
    assert found == (1.25 * 86_400 + 3 * 7_200, 45, True, 5.0)


def test_an_archive_that_fails_and_one_that_is_not_written_are_findings(clinic):
    clinic.conn.execute("insert into partbox.meta (key, value) values ('archived_id', '0')")
    assert clinic.causes() == []
    clinic.conn.execute(
        "insert into partbox.meta (key, value) values ('archive_failed',"
        " json_build_object('problem', 'no room there', 'since', extract(epoch from now()) - 7300)::text)"
    )
    found = clinic.one("archive")
    assert found["summary"] == "writing the archive has failed for 2 h: expired records stay in the log"
    assert found["evidence"] == ["no room there"]
    clinic.conn.execute("update partbox.meta set value = null where key = 'archive_failed'")
    assert clinic.causes() == []
    clinic.plant.publish("7")
    clinic.conn.execute("update partbox.record set created_at = now() - interval '20 days'")
    assert "an archive is kept, but records up to " in clinic.one("archive")["summary"]
    assert "record 1 and all later records wait to be archived" in clinic.one("archive")["evidence"]
    clinic.follow(clinic.one("archive")["remedy"][1])
    assert "archive" not in clinic.causes()
