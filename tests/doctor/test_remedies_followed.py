"""Remedies of doctor and of functions in the database, as they are proposed: followed, and the state after it judged.

Those that the tests of a check follow already are not repeated: `tests/docs/remedies.md` says which test runs which.
"""

import re
from contextlib import closing

import psycopg
import pytest
from doctor_app import ill
from roles import cast_of
from waiting import eventually

from partbox.doctor.checks import server
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import limits_of
from partbox.settings import load

pytestmark = pytest.mark.usefixtures("brisk")


def words(remedies, part: str) -> list[str]:
    """What stands in backticks in the remedies, where it holds this part."""
    return [each for text in remedies for each in re.findall("`([^`]*)`", text) if part in each]


def test_privileges_are_granted_again_by_the_init_command_of_the_remedy(clinic):
    with cast_of(clinic.dsn) as cast:
        clinic.conn.execute(f'revoke select, insert on partbox.parked from "{cast.worker}"')
        clinic.conn.execute(f'revoke usage on schema partbox from "{cast.worker}"')
        clinic.follow(clinic.one("privileges")["remedy"][0])
        assert "privileges" not in clinic.causes()


def test_a_role_that_is_exempted_from_row_security_sees_everything_again(clinic):
    with cast_of(clinic.dsn) as cast:
        clinic.conn.execute("alter table partbox.parked enable row level security")
        (exempt,) = words(clinic.one("row-security")["remedy"], "bypassrls")
        clinic.conn.execute(exempt)
        assert "row-security" not in clinic.causes()
        assert cast.worker in exempt


def test_a_segment_that_was_detached_by_hand_is_attached_again(clinic):
    clinic.plant.publish("7")
    clinic.conn.execute("alter table partbox.record detach partition partbox.record_1")
    assert clinic.one("displaced")["remedy"] == ["Attach it again, with the ids that it had."]
    clinic.conn.execute(
        "alter table partbox.record attach partition partbox.record_1 for values from (minvalue) to (10000000)"
    )
    assert "displaced" not in clinic.causes()


def test_a_foreign_table_in_the_place_of_ours_is_adopted_if_it_has_every_column(clinic):
    with clinic.conn.transaction():
        clinic.conn.execute("alter table partbox.parked rename to other")
        clinic.conn.execute("create table partbox.parked (like partbox.other including all)")
    (remedy,) = clinic.one("displaced")["remedy"]
    (adopt,) = re.findall("delete from .* where key = 'tables'", remedy)
    clinic.conn.execute(adopt)
    assert clinic.one("displaced")["summary"].startswith("table meta of schema")
    clinic.follow(clinic.one("displaced")["remedy"][0])
    assert clinic.findings() == []


def test_a_subscription_with_deleted_cursors_is_recreated(clinic):
    clinic.run("subscription", "create", "audit")
    clinic.conn.execute("delete from partbox.partition where subscription = 'audit' and partition < 7")
    found = clinic.one("displaced")
    assert found["remedy"] == [
        "Put the rows back as they were, or pause and drop the subscription and create it again."
    ]
    for command in (("pause", "audit"), ("drop", "audit", "--yes"), ("create", "audit")):
        assert clinic.run("subscription", *command)[0] == 0, command
    assert "displaced" not in clinic.causes()


def test_a_copy_is_adopted_by_the_rebase_command_of_the_remedy(clinic):
    clinic.plant.publish("7")
    clinic.conn.execute("update partbox.meta set value = null where key = 'marker'")  # as written by somebody else
    (rebase,) = words(clinic.one("copied")["remedy"], "rebase")
    clinic.follow(f"`{rebase} --yes`")  # a terminal asks
    assert "copied" not in clinic.causes()
    with ill(clinic.dsn).worker():
        eventually(lambda: clinic.number("select sum(count) from partbox.backlog") == 0)


@pytest.mark.parametrize("setting", ["full_page_writes", "synchronous_commit", "autovacuum", "track_counts"])
def test_a_server_setting_that_is_off_is_switched_on_by_the_remedy(own_server, setting):
    def remedies() -> list[str]:
        given = load(dsn=own_server.dsn)
        found = examine_outbox(lambda: own_server.dsn, given, limits_of(given, 0.0)).findings
        return [text for each in found for text in each.remedy if f" {setting} =" in text]

    with closing(psycopg.connect(own_server.dsn, autocommit=True)) as conn:
        conn.execute(f"alter system set {setting} = off")
        conn.execute("select pg_reload_conf()")
        for statement in words(eventually(remedies), ""):
            conn.execute(statement)
        eventually(lambda: remedies() == [])


def test_a_role_that_may_not_see_sessions_of_others_is_granted_the_right(clinic):
    clinic.conn.execute("drop role if exists looker; create role looker login")
    try:
        clinic.conn.execute(
            "grant usage on schema partbox to looker; grant select on all tables in schema partbox to looker;"
            "grant select on sequence partbox.record_id_seq to looker"
        )
        given = load(dsn=clinic.dsn)
        dsn = psycopg.conninfo.make_conninfo(clinic.dsn, user="looker")

        def unseen() -> list[str]:
            found = examine_outbox(lambda: dsn, given, limits_of(given, 0.0)).findings
            return [text for each in found if each.cause == "not-seen" for text in each.remedy]

        (grant,) = words(unseen(), "grant")
        clinic.conn.execute(grant)
        assert unseen() == []
    finally:
        clinic.conn.execute("drop owned by looker; drop role looker")


@pytest.mark.parametrize("ending", [0, 1], ids=["commit", "rollback"])
def test_a_forgotten_prepared_transaction_is_ended(clinic, ending):
    clinic.conn.execute("begin; select pg_current_xact_id(); prepare transaction 'two''phase'")
    try:
        clinic.conn.execute(words(clinic.one("prepared-transaction", over=0.0)["remedy"], "prepared")[ending])
        assert clinic.causes(over=0.0) == []
    finally:
        with psycopg.connect(clinic.dsn, autocommit=True) as conn:
            for (gid,) in conn.execute("select gid from pg_prepared_xacts where database = current_database()"):
                conn.execute(f"rollback prepared {psycopg.sql.quote(gid)}")


def test_a_prepared_transaction_that_keeps_a_lock_is_found_and_ended(clinic):
    clinic.conn.execute("begin; update partbox.partition set saved_at = now(); prepare transaction 'keeps'")
    with closing(clinic.session("waiter")) as waiter:
        waiter.pgconn.send_query(b"update partbox.partition set saved_at = now() where partition = 7")
        (found,) = eventually(lambda: [each for each in clinic.findings(over=0.0) if each["cause"] == "locks"])
        look, end = words(found["remedy"], "prepared")
        assert clinic.conn.execute(look).fetchall() == [("keeps",)]
        clinic.conn.execute(end.replace("GID", "keeps"))
        eventually(lambda: "locks" not in clinic.causes(over=0.0))


def test_a_slot_keeps_no_more_wal_than_the_limit_of_the_remedy(own_server):
    with closing(psycopg.connect(own_server.dsn, autocommit=True)) as conn:
        conn.execute("select pg_create_physical_replication_slot('old_standby', true)")
        given = load(dsn=own_server.dsn)
        found = examine_outbox(lambda: own_server.dsn, given, limits_of(given, 0.0)).findings
        for statement in words([text for each in found for text in each.remedy if "max_slot_wal" in text], ""):
            conn.execute(statement)
        eventually(lambda: conn.execute("show max_slot_wal_keep_size").fetchone() == ("10GB",))


def test_the_statement_of_the_remedy_shows_which_roles_use_the_connections(clinic, monkeypatch):
    monkeypatch.setattr(server, "SLOTS_USED", 0.0)
    with closing(clinic.session("hoarder")):
        (look,) = words(clinic.one("connections")["remedy"], "select ")
        assert "hoarder" in {application for _, application, _ in clinic.conn.execute(look).fetchall()}


def test_the_oldest_tables_are_listed_and_frozen(clinic, monkeypatch):
    monkeypatch.setattr("partbox.doctor.checks.server.UNFROZEN_LIMIT", -1)
    listing, freezing = (each.split("`")[1] for each in clinic.one("wraparound")["remedy"])
    age = "select age(relfrozenxid) from pg_class where oid = 'partbox.meta'::regclass"
    clinic.conn.execute("select pg_current_xact_id()")
    before, listed = clinic.conn.execute(age).fetchone(), clinic.conn.execute(listing).fetchall()
    assert [found for _, found in listed] == sorted((found for _, found in listed), reverse=True)
    clinic.conn.execute(freezing.replace("TABLE", "partbox.meta"))
    assert clinic.conn.execute(age).fetchone() < before


def test_a_role_whose_sessions_idle_in_transactions_is_given_a_timeout(clinic):
    clinic.conn.execute("drop role if exists idler; create role idler login")
    dsn = psycopg.conninfo.make_conninfo(clinic.dsn, user="idler")
    try:
        with closing(psycopg.connect(dsn)) as idle:
            idle.execute("select pg_current_xact_id()")
            (limit,) = words(clinic.one("idle-transaction", over=0.0)["remedy"], "alter role")
            clinic.conn.execute(limit)
        with closing(psycopg.connect(dsn)) as later:
            assert later.execute("show idle_in_transaction_session_timeout").fetchone() == ("1min",)
    finally:
        clinic.conn.execute("drop role idler")


def test_a_limit_is_widened_and_reset_by_the_commands_of_the_remedy(clinic):
    assert clinic.run("limit", "set", "--rate=100/s", "shop.charge")[0] == 0
    clinic.ghost()
    (reset,) = words(clinic.one("limit")["remedy"], "limit reset")
    assert clinic.run("limit", "set", "--rate=200/s", "--at-once=10", "shop.charge")[0] == 0
    assert clinic.number("select rate::int from partbox.handler_limit") == 200
    clinic.follow(f"`{reset}`")
    assert "limit" not in clinic.causes()


@pytest.mark.parametrize(("act", "more"), [("replay", ("--yes",)), ("discard", ())])
def test_dead_events_are_replayed_or_discarded_by_the_commands_of_the_remedy(clinic, act, more):
    clinic.plant.park("7", error="SmtpError: to ada@example.org", age=600)
    named = words(clinic.one("dead")["remedy"], f"dead {act}")[0].split()[1:]
    code, _, err = clinic.run(*dict.fromkeys((*named, *more)))
    assert (code, err) == (0, "")
    assert "dead" not in clinic.causes()


def test_a_blocked_key_is_retried_by_the_command_of_the_remedy(clinic):
    clinic.ghost()
    clinic.owned_by_the_first()
    clinic.plant.park("7", "retrying", blocks=True, due=3_600, age=4_000)
    (retry,) = words(clinic.one("blocked-key")["remedy"], "blocked retry")
    clinic.follow(f"`{retry}`")
    assert clinic.number("select count(*) from partbox.parked where due_at > now()") == 0


def test_the_search_path_is_secured_by_the_statements_of_the_remedy(clinic):
    clinic.conn.execute("create schema shop")
    with cast_of(clinic.dsn) as cast:
        clinic.conn.execute(f"alter schema shop owner to {cast.publisher}; grant usage on schema shop to {cast.worker}")
        clinic.conn.execute(f"alter role {cast.worker} set search_path = shop, public")
        dsn = cast.of("worker")
        given = load(dsn=dsn)

        def remedies() -> list[str]:
            found = examine_outbox(lambda: dsn, given, limits_of(given, 0.0)).findings
            return [text for each in found if each.cause == "search-path" for text in each.remedy]

        own, leave = words(remedies(), "alter ")
        clinic.conn.execute(own.replace("…", cast.worker))
        assert remedies() == []
        clinic.conn.execute(f"alter schema shop owner to {cast.publisher}")
        clinic.conn.execute(leave.replace("…", "public"))
        assert remedies() == []
        clinic.conn.execute("drop schema shop")
