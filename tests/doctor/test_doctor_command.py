"""`partbox doctor` as a command: what it prints, how it ends, and what it needs."""

import json
import re
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from partbox.db.schema.migrate import migrate
from partbox.doctor.checks import CHECKS

ROOT = Path(__file__).parents[2]
HOSTILE = "\x1b[2J[bold]\x9b\u202e'; drop\nproblem  fake  " + "x" * 10_000


@pytest.fixture
def reader(conn, dsn):
    """The DSN of a role that may read the outbox's tables, and nothing else."""
    conn.execute("drop role if exists reader; create role reader login")
    conn.execute("grant usage on schema partbox to reader; grant select on all tables in schema partbox to reader")
    conn.execute("grant select on sequence partbox.record_id_seq to reader")
    yield make_conninfo(dsn, user="reader")
    conn.execute("drop owned by reader; drop role reader")


def test_doctor_says_that_a_healthy_outbox_is_healthy(run):
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "note  durability"  # test servers have fsync off
    assert out.splitlines()[-1] == "schema partbox: healthy, with 2 notes"


def test_a_finding_is_printed_with_evidence_and_remedy(run, clinic):
    clinic.plant.publish("7")
    clinic.plant.park("8")
    clinic.conn.execute("update partbox.partition set last_id = 0, floor_id = 0, snapshot = '1:1:'")
    code, out, _ = run("doctor")
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "problem  no-workers  subscription default"
    assert lines[1] == "  records wait, and no process delivers them"
    assert lines[2].startswith("    2 records pending")
    assert lines[3] == "  remedy  start workers: `partbox worker MODULE:OUTBOX`"
    assert lines[-1] == "schema partbox: 1 problem, 1 warning, 2 notes"
    assert "\x1b" not in out


def test_severities_are_coloured_where_colours_are_wanted(run, clinic, monkeypatch):
    clinic.plant.publish("7")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("doctor")[1].startswith("\x1b[1;31mproblem\x1b[0m")


def test_doctor_changes_nothing_in_the_database(clinic, run):
    clinic.plant.park("7", "retrying", blocks=True, due=60)

    def everything() -> list:
        tables = ("partition", "instance", "parked", "subscription", "meta", "record")
        return [
            clinic.conn.execute(f"select xmin, ctid, t.* from partbox.{name} t".encode()).fetchall() for name in tables
        ]

    before, ids = everything(), clinic.number("select pg_current_xact_id()::text::bigint")
    run("doctor")
    assert everything() == before
    assert clinic.number("select pg_current_xact_id()::text::bigint") == ids + 1  # ours


@pytest.mark.parametrize(
    ("dsn", "cause", "said"),
    [
        ("host=127.0.0.1 port=1 password=s3cret", "database", "cannot use the database"),
        ("nonsense", "database", "the DSN cannot be read"),
    ],
    ids=["nobody listens", "no DSN"],
)
def test_an_unreachable_database_is_a_one_line_error_of_doctor(run, dsn, cause, said):
    code, out, err = run("doctor", "--dsn", dsn)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err
    code, out, err = run("doctor", "--json", "--dsn", dsn)
    (found,) = json.loads(out)["findings"]
    assert (code, err, found["cause"], found["severity"]) == (1, "", cause, "problem")
    assert said in found["summary"]
    assert "s3cret" not in out


def newer(dsn):
    migrate(dsn)
    with psycopg.connect(dsn) as conn:
        conn.execute("update partbox.meta set value = '999' where key in ('schema_version', 'breaking_version')")


def behind(dsn):
    migrate(dsn)
    with psycopg.connect(dsn) as conn:
        conn.execute("update partbox.meta set value = '0' where key = 'schema_version'")


def foreign(dsn):
    with psycopg.connect(dsn) as conn:
        conn.execute("create schema partbox; create table partbox.meta (name text)")


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda dsn: None, "run `partbox init`"),
        (newer, "upgrade partbox"),
        (behind, "run `partbox migrate`"),
        (foreign, "choose another schema name"),
    ],
    ids=["missing", "newer", "behind", "foreign"],
)
def test_a_missing_schema_or_one_of_another_version_is_refused_by_doctor(run, empty_dsn, prepare, said):
    prepare(empty_dsn)
    code, out, err = run("doctor", "--dsn", empty_dsn)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err
    code, out, _ = run("doctor", "--json", "--dsn", empty_dsn)
    (found,) = json.loads(out)["findings"]
    assert (code, found["cause"], json.loads(out)["healthy"]) == (1, "schema", False)
    assert said in found["summary"]


def test_a_database_of_another_encoding_is_refused_by_doctor(run, conn, dsn):
    conn.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
    try:
        code, _, err = run("doctor", "--dsn", make_conninfo(dsn, dbname="latin"))
        assert code == 1
        assert "'latin' has LATIN1: create one with" in err
    finally:
        conn.execute("drop database latin with (force)")


def test_a_standby_or_read_only_session_is_refused_in_one_line(run, dsn):
    code, out, err = run("doctor", "--dsn", make_conninfo(dsn, options="-c default_transaction_read_only=on"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "cannot use the database" in err


def test_a_role_with_few_privileges_learns_what_doctor_could_not_see(run, clinic, reader):
    clinic.plant.publish("7")
    with clinic.session("billing") as other:
        other.execute("select pg_current_xact_id()")
        code, out, err = run("doctor", "--json", "--transactions-over", "0s", "--dsn", reader)
    found = {each["cause"]: each for each in json.loads(out)["findings"]}
    assert (code, err) == (1, "")
    assert set(found) == {"no-workers", "durability", "bell", "not-seen"}
    assert found["not-seen"]["severity"] == "note"
    assert "`grant pg_read_all_stats to reader`" in found["not-seen"]["remedy"][0]


def test_an_unreadable_table_is_named_and_everything_else_is_judged(run, clinic, reader):
    for table in ("parked", "partition", "record", "record_default", "instance"):
        clinic.conn.execute(f"revoke select on partbox.{table} from reader".encode())
        code, out, err = run("doctor", "--json", "--dsn", reader)
        (found,) = [each for each in json.loads(out)["findings"] if "could not be read" in each["summary"]]
        assert f"permission denied for table {table}" in str(found["evidence"])
        assert "select on all tables" in found["remedy"][0]
        assert found["severity"] == ("note" if table == "record_default" else "problem"), table
        assert (code, err) == (0 if table == "record_default" else 1, ""), table
        clinic.conn.execute(f"grant select on partbox.{table} to reader".encode())


def test_a_role_without_privileges_learns_that_nothing_can_be_judged(run, conn, dsn):
    conn.execute("drop role if exists passer_by; create role passer_by login")
    try:
        code, out, err = run("doctor", "--dsn", make_conninfo(dsn, user="passer_by"))
        assert (code, err) == (1, "")
        assert out.startswith("problem  not-seen")
        assert "    the version of the schema: permission denied for schema partbox" in out
    finally:
        conn.execute("drop role passer_by")


def test_hostile_names_and_errors_reach_no_terminal_and_no_command(run, clinic):
    clinic.plant.park(
        HOSTILE[:8_000],
        "retrying",
        blocks=True,
        due=60,
        aggregate_type=HOSTILE[:255],
        event_type=HOSTILE[:255],
        error=HOSTILE,
    )
    clinic.plant.park("8", "dead", event_type=HOSTILE[:255], error=f"Error: {HOSTILE}")
    with clinic.session(HOSTILE[:50].replace("\n", " ")) as other:
        other.execute("select pg_current_xact_id()")
        code, out, _ = run("doctor", "--transactions-over", "0s")
        _, plain, _ = run("doctor", "--json", "--transactions-over", "0s")
    assert code == 1
    for text in (out, plain):
        assert all(each.isprintable() for line in text.splitlines() for each in line)
        assert len(text) < 10_000
    assert not [line for line in out.splitlines() if line.startswith("problem  fake")]
    blocked = next(each for each in json.loads(plain)["findings"] if each["cause"] == "blocked-key")
    assert "`partbox blocked list --json`" in blocked["remedy"][0]


def test_another_schema_is_named_in_every_command(run, clinic, dsn):
    name = "o'x\"; drop schema partbox; -- %s {x} \\"
    migrate(dsn, name)
    assert run("doctor", "--schema", name)[0] == 0
    clinic.conn.execute(
        psycopg.sql.SQL(
            "insert into {}.record (partition, event_id, event_type) values (3, gen_random_uuid(), 'x')"
        ).format(psycopg.sql.Identifier(name))
    )
    code, out, _ = run("doctor", "--json", "--schema", name)
    (found,) = [each for each in json.loads(out)["findings"] if each["cause"] == "no-workers"]
    assert code == 1
    assert "partbox worker MODULE:OUTBOX --schema 'o'\"'\"'x" in found["remedy"][0]


def test_doctor_judges_an_outbox_without_subscriptions_too(run, empty_dsn):
    migrate(empty_dsn, writer_only=True)
    assert run("doctor", "--dsn", empty_dsn)[0] == 0
    with psycopg.connect(empty_dsn) as conn:
        conn.execute(
            "insert into partbox.record (partition, event_id, event_type, created_at)"
            " values (3, gen_random_uuid(), 'Placed', now() - interval '9 days')"
        )
    assert "which nobody needs, have not been purged" in run("doctor", "--dsn", empty_dsn)[1]


@pytest.mark.parametrize("text", ["soon", "-1", ""])
def test_a_wrong_duration_is_a_one_line_error(run, text):
    code, out, err = run("doctor", "--transactions-over", text)
    assert (code, out) == (1, "")
    assert f"--transactions-over {text!r} is not a time" in err


def test_the_page_on_doctor_lists_exactly_the_checks_that_exist(run):
    committed = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"(?s)## What it knows\n\n.*?\n\n(.*?)\n## ", committed)
    assert run("doctor", "--markdown")[1] == listed, "put what it prints into docs/doctor.md"


def test_every_check_has_a_test_that_provokes_it():
    """By its name: a check that no test of this folder mentions is not known to work."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [check.name for check in CHECKS if not re.search(f'"{check.name}"', tests)] == []


def test_help_teaches_with_an_example(run):
    assert "Example: partbox doctor --dsn" in " ".join(run("doctor", "--help")[1].split())
