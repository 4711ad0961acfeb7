"""What keeps workers from seeing everything is named, as their role meets it, whoever asks; and the remedy ends it."""

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from roles import Cast, cast_of, each_of

from partbox.db.sql import fetch_rows
from partbox.doctor.phrases import quote_name

pytestmark = pytest.mark.usefixtures("brisk")
EVERY = pytest.mark.every_version("privileges, as each version grants them")


@pytest.fixture
def cast(clinic):
    with cast_of(clinic.dsn) as cast:
        yield cast


def test_row_security_that_hides_rows_from_workers_is_a_finding(clinic, cast: Cast):
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


def test_row_security_that_does_not_affect_workers_is_no_finding(clinic, cast: Cast):
    clinic.conn.execute(f'alter role "{cast.worker}" bypassrls')
    clinic.conn.execute("alter table partbox.record enable row level security")
    assert clinic.causes() == []


def test_privileges_revoked_from_workers_are_a_finding(clinic, cast: Cast):
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


def test_a_schema_that_workers_may_not_use_is_a_finding(clinic, cast: Cast):
    clinic.conn.execute(f'revoke usage on schema partbox from "{cast.worker}"')
    assert "usage on schema" in clinic.one("privileges")["evidence"]


def test_a_foreign_table_in_the_place_of_ours_is_a_finding(clinic):
    with clinic.conn.transaction():
        clinic.conn.execute("alter table partbox.parked rename to other")
        clinic.conn.execute("create table partbox.parked (like partbox.other)")
    found = clinic.one("displaced")
    assert found["summary"] == "in schema partbox something else has the place of: parked"
    assert "`partbox migrate`" in found["remedy"][0]


def test_a_segment_that_was_detached_by_hand_is_a_finding(clinic):
    clinic.plant.publish("7")
    clinic.conn.execute("alter table partbox.record detach partition partbox.record_1")
    assert clinic.one("displaced")["summary"].endswith("with records that some cursor has not passed: record_1")


def test_triggers_and_rules_that_keep_rows_out_of_our_tables_are_a_finding(clinic):
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


def test_triggers_that_change_no_rows_are_only_a_note(clinic):
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


def as_worker(clinic, cast: Cast, path: str | None = None) -> list[dict]:
    """What doctor finds of the search_path when the role of workers asks, with this path."""
    options = {} if path is None else {"options": f"-c search_path={path}"}
    _, report = clinic.doctor("--dsn", make_conninfo(cast.of("worker"), **options))
    assert not [each for each in report["findings"] if "could not be read" in each["summary"]]
    return [each for each in report["findings"] if each["cause"] == "search-path"]


@EVERY
def test_others_who_may_create_functions_in_the_search_path_of_workers_are_a_finding(clinic, cast: Cast):
    assert as_worker(clinic, cast) == []
    clinic.conn.execute(f"grant create on schema public to {cast.publisher}")
    (found,) = as_worker(clinic, cast)
    assert found["severity"] == "warning"
    assert found["summary"] == (
        f"other roles can run code as role {cast.worker}: they may create functions in schema public, which is in its "
        "search_path"
    )
    assert found["evidence"] == [f"may create there: {cast.publisher}"]
    assert f"`alter role {cast.worker} set search_path = …`" in found["remedy"][1]
    assert as_worker(clinic, cast, "pg_catalog") == []
    clinic.follow(found["remedy"][0])
    assert as_worker(clinic, cast) == []


@EVERY
def test_the_right_of_everybody_to_create_in_public_as_in_postgresql_14_is_a_finding(clinic, cast: Cast):
    clinic.conn.execute(f"grant create on schema public to public, {cast.publisher}")
    (found,) = as_worker(clinic, cast)
    assert found["evidence"] == [f"may create there: PUBLIC, {cast.publisher}"]
    assert clinic.one("search-path")["evidence"] == found["evidence"]  # a superuser looks there, too
    for remedy in found["remedy"][:2]:
        clinic.follow(remedy)
    assert as_worker(clinic, cast) == clinic.causes() == []


@EVERY
def test_a_group_that_may_create_there_is_named_if_it_has_a_member_other_than_the_worker(clinic, cast: Cast):
    group = f"{cast.stranger}_group"
    clinic.conn.execute(
        f"create role {group}; grant create on schema public to {group}; grant {group} to {cast.worker}"
    )
    try:
        assert as_worker(clinic, cast) == []
        clinic.conn.execute(f"grant {group} to {cast.stranger}")
        assert [each["evidence"] for each in as_worker(clinic, cast)] == [[f"may create there: {group}"]]
    finally:
        clinic.conn.execute(f"drop owned by {group}; drop role {group}")


@EVERY
@pytest.mark.parametrize(
    "trusted", ["superuser", "the database's owner", "the schema's owner", "the worker", "a member"]
)
def test_a_role_that_has_more_power_anyway_may_create_in_the_search_path(clinic, cast: Cast, trusted: str):
    """The stranger owns a schema in the path, and is trusted for another reason."""
    stranger, owner = cast.stranger, clinic.conn.info.user
    clinic.conn.execute(f"create schema shop authorization {stranger}; grant usage on schema shop to {cast.worker}")
    clinic.conn.execute(f"revoke create on schema shop from {stranger}")  # who may grant it again
    (found,) = as_worker(clinic, cast, "shop")
    assert found["evidence"] == [f"may create there: {stranger}"]
    assert found["remedy"][0] == "`alter schema shop owner to …`"
    database = sql.Identifier(clinic.conn.info.dbname).as_string()
    made, undone = {
        "superuser": (f"alter role {stranger} superuser", f"alter role {stranger} nosuperuser"),
        "the database's owner": (f"alter database {database} owner to {s}" for s in (stranger, owner)),
        "the schema's owner": (f"alter schema partbox owner to {s}" for s in (stranger, owner)),
        "the worker": (f"alter schema shop owner to {cast.worker}", f"alter schema shop owner to {owner}"),
        "a member": (f"grant {cast.worker} to {stranger}", f"revoke {cast.worker} from {stranger}"),
    }[trusted]
    clinic.conn.execute(made)
    try:
        assert as_worker(clinic, cast, "shop") == []
    finally:
        clinic.conn.execute(undone)


@EVERY
def test_hostile_names_of_schemas_and_roles_reach_no_terminal_and_no_command(clinic, cast: Cast):
    plain, hostile = "o'x\"; drop schema partbox; -- %s {x}", "\x1b[2J\nproblem  fake"
    # PostgreSQL 19 refuses a line break in the name of a role.
    roles = [f"{name} {cast.stranger[-8:]}" for name in (plain, hostile.replace("\n", " "))]
    each_of(clinic.conn, "create role {} login", roles)
    try:
        for schema in (plain, hostile):
            given = sql.SQL(
                "create schema {0}; grant usage on schema {0} to {1}; grant create on schema {0} to {2}, {3}"
            )
            names = (schema, cast.worker, *roles)
            clinic.conn.execute(given.format(*map(sql.Identifier, names)))
        path = sql.SQL("alter role {} set search_path = {}, {}")
        clinic.conn.execute(path.format(*map(sql.Identifier, (cast.worker, plain, hostile))))
        _, out, _ = clinic.run("doctor", "--dsn", cast.of("worker"))
        assert all(each.isprintable() for line in out.splitlines() for each in line)
        assert not [line for line in out.splitlines() if line.startswith("problem  fake")]
        of_hostile, of_plain = as_worker(clinic, cast)
        assert (len(of_hostile["remedy"]), len(of_plain["remedy"])) == (1, 2)
        clinic.follow(of_plain["remedy"][0])
        _, of_plain = as_worker(clinic, cast)
        assert [each.isprintable() for each in of_plain["evidence"]] == [False]
        assert quote_name(roles[0]) not in of_plain["evidence"][0]
    finally:
        each_of(clinic.conn, "drop owned by {}", roles)
        each_of(clinic.conn, "drop role {}", roles)


@EVERY
def test_the_check_of_the_search_path_runs_no_function_that_others_have_put_there(clinic, cast: Cast):
    clinic.conn.execute(f"grant create on schema public to {cast.publisher}")
    with psycopg.connect(cast.of("publisher"), autocommit=True) as publisher:
        raises = "language plpgsql as $$ begin raise 'their code runs as %', current_user; end $$"
        publisher.execute(f"create function public.quote_ident(name) returns text {raises}".encode())
        publisher.execute(f"create function public.eq(oid, int) returns bool {raises}".encode())
        publisher.execute("create operator public.= (leftarg = oid, rightarg = int, function = public.eq)")
    with psycopg.connect(cast.of("worker")) as worker:
        ((*_, user, creators),) = fetch_rows(worker, "doctor_search_path", "partbox")
    assert (user, creators) == (cast.worker, [cast.publisher])
