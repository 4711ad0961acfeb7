"""What keeps workers from seeing everything is named, as their role meets it, whoever asks; and the remedy ends it."""

import pytest
from roles import Cast, cast_of

pytestmark = pytest.mark.usefixtures("brisk")


@pytest.fixture
def cast(clinic):
    with cast_of(clinic.dsn) as cast:
        yield cast


def test_row_security_that_hides_rows_from_workers(clinic, cast: Cast):
    assert clinic.causes() == []
    for table in ("record", "parked"):
        clinic.conn.execute(f"alter table partbox.{table} enable row level security")
    found = clinic.one("row-security")
    assert (
        found["summary"]
        == f"row security hides rows of parked, record from role {cast.worker}: its workers read nothing"
    )
    for remedy in found["remedy"][:2]:
        clinic.follow(remedy)
    assert clinic.causes() == []


def test_row_security_that_does_not_concern_workers_is_nobody_s_business(clinic, cast: Cast):
    clinic.conn.execute(f'alter role "{cast.worker}" bypassrls')
    clinic.conn.execute("alter table partbox.record enable row level security")
    assert clinic.causes() == []


def test_privileges_that_were_taken_from_workers(clinic, cast: Cast):
    clinic.conn.execute(f'revoke select, insert on partbox.parked from "{cast.worker}"')
    clinic.conn.execute(f'revoke select on sequence partbox.record_id_seq from "{cast.worker}"')
    clinic.conn.execute(f'revoke execute on function partbox.claim from "{cast.worker}"')
    found = clinic.one("privileges")
    assert found["summary"] == f"role {cast.worker} of workers lacks 4 privileges"
    assert found["evidence"] == [
        "execute on function partbox.claim(text,uuid)",
        "select on sequence record_id_seq",
        "insert, select on table parked",
    ]
    assert f"partbox init --worker-role={cast.worker}" in found["remedy"][0]


def test_a_schema_that_workers_may_not_use(clinic, cast: Cast):
    clinic.conn.execute(f'revoke usage on schema partbox from "{cast.worker}"')
    assert "usage on schema" in clinic.one("privileges")["evidence"]


def test_a_table_that_is_not_ours(clinic):
    with clinic.conn.transaction():
        clinic.conn.execute("alter table partbox.parked rename to other")
        clinic.conn.execute("create table partbox.parked (like partbox.other)")
    found = clinic.one("displaced")
    assert found["summary"] == "in schema partbox something else has the place of: parked"
    assert "`partbox migrate`" in found["remedy"][0]


def test_a_segment_that_was_detached_by_hand(clinic):
    clinic.plant.publish("7")
    clinic.conn.execute("alter table partbox.record detach partition partbox.record_1")
    assert clinic.one("displaced")["summary"].endswith("with records that some cursor has not passed: record_1")


def test_triggers_and_rules_that_keep_rows_out_of_our_tables(clinic):
    clinic.conn.execute(
        "create function partbox.drops() returns trigger language plpgsql as $$ begin return  NULL; end $$;"
        'create trigger "Drop it" before insert on partbox.record for each row execute function partbox.drops();'
        "create trigger part before insert on partbox.record_1 for each row execute function partbox.drops();"
        "create rule keeps as on update to partbox.parked do instead nothing"
    )
    found = clinic.one("triggers")
    assert found["severity"] == "problem"
    assert found["evidence"] == [
        "rule keeps on parked",
        'trigger "Drop it" on record, which runs partbox.drops()',
        "trigger part on record_1, which runs partbox.drops()",
    ]
    for remedy in found["remedy"]:
        clinic.follow(remedy)
    assert clinic.causes() == []


def test_triggers_that_only_look_are_a_note(clinic):
    """After a row, or before a statement, every trigger returns null."""
    clinic.conn.execute(
        "create function partbox.audits() returns trigger language plpgsql as $$ begin return null; end $$;"
        "create function partbox.passes() returns trigger language plpgsql as $$ begin return new; end $$;"
        "create trigger after after insert on partbox.record for each row execute function partbox.audits();"
        "create trigger before before update on partbox.partition execute function partbox.audits();"
        "create trigger passes before insert on partbox.parked for each row execute function partbox.passes();"
        "create trigger off before insert on partbox.meta for each row execute function partbox.audits();"
        "alter table partbox.meta disable trigger off"
    )
    _, report = clinic.doctor()
    (found,) = [each for each in report["findings"] if each["cause"] == "triggers"]
    assert found["severity"] == "note"
    assert [each.split(",")[0] for each in found["evidence"]] == [
        "trigger passes on parked",
        "trigger before on partition",
        "trigger after on record",
    ]
