"""`partbox purge --archive` and `partbox import --archive`."""

import json
import re

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from partbox.archive.errors import ZSTD


@pytest.fixture
def old(conn, monkeypatch, dsn):
    """Five records that every subscription has passed, of nine days ago."""
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    conn.execute(
        "insert into partbox.record"
        " (partition, event_id, event_type, aggregate_type, aggregate_id, payload, created_at)"
        " select partbox.partition_of('7'), gen_random_uuid(), 'Placed', 'Order', '7', to_json(g),"
        " now() - interval '9 days' from generate_series(1, 5) g"
    )
    conn.execute("update partbox.partition set last_id = 5, floor_id = 5")


def test_archiving_and_restoring_by_hand_are_recorded_as_actions(partbox, old, tmp_path):
    place = tmp_path / "archive"
    partbox("purge", "--archive", str(place))
    partbox("purge", "--no-archive")
    partbox("import", "--archive", str(place), "--as", "again")
    acts = json.loads(partbox("actions", "--json").out)
    assert [(act["action"], act["count"]) for act in acts] == [
        ("import", 5),
        ("archive end", 1),
        ("purge", 5),
        ("archive begin", 1),
    ]
    assert acts[0]["target"]["as"] == "again"
    assert acts[0]["target"]["archive"].startswith(str(place))


@pytest.mark.thorough
def test_expired_records_are_archived_and_can_be_imported_again(partbox, old, tmp_path, conn):
    place = str(tmp_path / "archive")
    dry = partbox("purge", "--archive", place, "--dry-run")
    assert (dry.code, dry.out) == (0, "would archive 5 records; more may be purged after that\nwould purge 5 records\n")

    done = partbox("purge", "--archive", place)
    assert (done.code, done.out, done.err) == (0, "archived 5 records in 1 file\npurged 5 records\n", "")

    dry = partbox("import", "--archive", place, "--dry-run", "--json")
    assert (json.loads(dry.out)["imported"], len(json.loads(dry.out)["first"])) == (5, 5)
    shown = partbox("import", "--archive", place, "--dry-run")
    assert f"would import 5 records from 1 file of {place}" in shown.out
    assert "Order 7" in shown.out
    some = partbox("import", "--archive", place, "--type", "Other,More", "--since", "2026-01-01T00:00:00Z")
    assert some.out.endswith("; left: 5 others\n")
    back = partbox("import", "--archive", place)
    assert (back.code, back.out.splitlines()[0][:18]) == (0, "imported 5 records")
    assert partbox("import", "--archive", place).out.endswith("; left: 5 imported before\n")
    assert partbox("import", "--archive", place, "--as", "june", "--json").code == 0
    assert conn.execute("select count(*) from partbox.record").fetchone() == (10,)


def test_a_row_that_a_trigger_keeps_out_of_the_log_is_not_counted_as_restored(partbox, old, tmp_path, conn):
    place = str(tmp_path / "archive")
    assert partbox("purge", "--archive", place).code == 0
    conn.execute(
        "create function partbox.drops() returns trigger language plpgsql as"
        " $$ begin return case when new.payload::text <> '3' then new end; end $$;"
        "create trigger drops before insert on partbox.record for each row execute function partbox.drops()"
    )
    failed = partbox("import", "--archive", place)
    assert (failed.code, failed.err.count("keeps out what is published: nothing was")) == (1, 1)
    assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)
    conn.execute("drop trigger drops on partbox.record")
    assert partbox("import", "--archive", place).out.startswith("imported 5 records")


@pytest.mark.parametrize("place", ["{}/no/where", "sftp://127.0.0.1:1/typo", "s3://typo?endpoint=http://127.0.0.1:1"])
def test_an_archive_that_cannot_be_written_purges_nothing_and_does_not_bind_later_purges(
    partbox, old, conn, tmp_path, monkeypatch, place
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    done = partbox("purge", "--archive", place.format(tmp_path))
    assert done.code == 1
    assert done.out == ("nothing was purged\n" if "not archived" in done.err else "")
    assert done.err.count("\n") == 1
    assert conn.execute("select count(*) from partbox.record").fetchone() == (5,)
    assert partbox("purge").out == "purged 5 records\n"


def test_an_archive_address_whose_scheme_lacks_slashes_is_not_taken_for_a_folder(partbox, old):
    done = partbox("purge", "--archive", "s3:/typo")
    assert done.code != 0
    assert "write s3://typo, or ./s3:/typo for a folder of that name" in done.err


def test_an_archive_that_fails_ends_with_1_and_one_line(partbox, old, tmp_path):
    place = tmp_path / "archive"
    assert partbox("purge", "--archive", str(place), "--dry-run").code == 0
    assert not place.exists()
    place.write_text("in the way")
    done = partbox("purge", "--archive", str(place))
    assert (done.code, done.out) == (1, "nothing was purged\n")
    assert done.err.startswith("partbox: not archived, so the records stay: archive ")
    assert done.err.count("\n") == 1


STANDS = (
    r"partbox: not archived yet: the transaction of pid {pid} \(report\){where}, open for [0-9.]+ s, is in the way: "
    r"records that it may still write come first\n"
)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this database", "in another database"])
def test_a_purge_whose_archive_waits_for_an_open_transaction_names_it_and_exits_with_1(
    partbox, old, conn, dsn, tmp_path, elsewhere
):
    place = str(tmp_path / "archive")
    database = {"dbname": "postgres"} if elsewhere else {}
    with psycopg.connect(make_conninfo(dsn, application_name="report", **database)) as other:
        other.execute("select pg_current_xact_id()")
        ran = partbox("purge", "--archive", place)
        assert (ran.code, ran.out.splitlines()[0]) == (1, "nothing was purged")
        where = ", in database 'postgres'" if elsewhere else ""
        assert re.fullmatch(STANDS.format(pid=other.info.backend_pid, where=where), ran.err), ran.err
        told = json.loads(partbox("purge", "--archive", place, "--json").out)
        assert f"pid {other.info.backend_pid}" in told["waiting"]
    assert partbox("purge", "--archive", place).out == "archived 5 records in 1 file\npurged 5 records\n"


def test_a_prepared_transaction_that_keeps_everything_from_the_archive_is_named(partbox, old, dsn, tmp_path):
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("begin; select pg_current_xact_id(); prepare transaction 'forgotten'")
        try:
            ran = partbox("purge", "--archive", str(tmp_path))
        finally:
            other.execute("rollback prepared 'forgotten'")
    assert ran.code == 1
    assert "not archived yet: the prepared transaction 'forgotten', open for " in ran.err


def test_another_process_that_is_archiving_is_named(partbox, old, dsn, tmp_path):
    with psycopg.connect(dsn, application_name="partbox archive") as other:
        other.execute("lock table partbox.archiving in exclusive mode")
        ran = partbox("purge", "--archive", str(tmp_path))
        assert ran.code == 1
        assert f"the transaction of pid {other.info.backend_pid} (partbox archive), open for " in ran.err
        assert ran.err.endswith(", is archiving just now\n")


def test_an_open_transaction_is_not_reported_when_nothing_has_expired(partbox, old, conn, dsn, tmp_path):
    conn.execute("update partbox.record set created_at = now()")
    with psycopg.connect(dsn) as other:
        other.execute("select pg_current_xact_id()")
        ran = partbox("purge", "--archive", str(tmp_path))
        assert (ran.code, ran.out, ran.err) == (0, "nothing has expired\n", "")


def test_a_purge_reports_records_that_are_not_archived_yet(partbox, old, conn, tmp_path):
    conn.execute("insert into partbox.meta (key, value) values ('archived_id', '0')")
    done = partbox("purge")
    assert (done.code, done.out.splitlines()[0]) == (1, "nothing was purged")
    assert "held back in record_1: record 1, its oldest: not archived yet" in done.out
    assert "held back in record_1: record 1, its oldest: not archived yet" in partbox("purge", "--dry-run").out

    ended = partbox("purge", "--no-archive")
    assert (ended.code, ended.out) == (0, "purged 5 records\n")
    assert ended.err == "partbox: no archive is kept any more\n"


def test_the_archive_setting_works_like_the_option(partbox, old, tmp_path, monkeypatch):
    monkeypatch.setenv("PARTBOX_ARCHIVE", str(tmp_path / "archive"))
    assert json.loads(partbox("purge", "--json").out)["archived"] == 5
    assert partbox("config").out.count("PARTBOX_ARCHIVE") >= 1


def test_without_the_compression_library_nothing_is_purged_and_the_remedy_is_named(partbox, old, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, ZSTD, None)
    done = partbox("purge", "--archive", str(tmp_path))
    assert done.code == 1
    assert f"the archive needs the library {ZSTD}: pip install 'partbox[archive]'" in done.err
