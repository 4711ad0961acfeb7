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
