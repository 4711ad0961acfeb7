"""Grants: the roles get what they need and are refused the rest; grants are renewed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from roles import Cast

from partbox import Outbox, inbox
from partbox.db.schema import grants
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate, migrate_in, migrate_inbox
from partbox.db.schema.scripts import build_script, build_statements
from partbox.errors import SchemaError

UUID = "'00000000-0000-0000-0000-000000000001'"
COLUMNS = "partition, event_id, event_type"
ROW = f"5, {UUID}, 'Forged'"


@pytest.fixture
def filled(cast: Cast, conn: psycopg.Connection[Any]) -> Cast:
    """There is something of everything to be read and written."""
    outbox = Outbox(cast.dsn)
    with outbox.transaction() as tx:
        outbox.publish(tx, "Placed", "secret", aggregate_type="Order", aggregate_id="7", idempotency_key="k")
        inbox.first_time(tx, "00000000-0000-0000-0000-000000000009", "billing")
    conn.execute("insert into partbox.parked values ('default', 1, 1, 'Order', '7', 'Placed', 'dead', true)")
    conn.execute("insert into partbox.instance values (default, 'default', 'n', 'h', 1, '0', default, default, '9 s')")
    return cast


FORBIDDEN_TO_ALL = (
    f"insert into partbox.record ({COLUMNS}, xid) values ({ROW}, '3')",
    f"insert into partbox.record ({COLUMNS}, id) values ({ROW}, 1)",
    f"insert into partbox.record ({COLUMNS}, id) values ({ROW}, default)",
    f"insert into partbox.record ({COLUMNS}, created_at) values ({ROW}, '2000-01-01')",
    f"insert into partbox.record ({COLUMNS}) values ({ROW}) returning id",
    f"insert into partbox.record ({COLUMNS}) values ({ROW}) on conflict (partition, id) do update set payload = '1'",
    f"insert into partbox.record_1 ({COLUMNS}) values ({ROW})",
    f"insert into partbox.record_default ({COLUMNS}) values ({ROW})",
    "update partbox.record set payload = 'null'",
    "update partbox.record_1 set partition = 7",
    "truncate partbox.record",
    "truncate partbox.record_1 restart identity",
    "select payload from partbox.record_1",
    "select setval('partbox.record_id_seq', 1)",
    "alter sequence partbox.record_id_seq restart",
    "alter table partbox.record alter id set default 7",
    "alter table partbox.record disable trigger all",
    "alter table partbox.record owner to current_user",
    "create table partbox.mine ()",
    "create function partbox.mine() returns int language sql as 'select 1'",
    "create or replace function partbox.new_event_id() returns uuid language sql as 'select null::uuid'",
    "create trigger mine after insert on partbox.record execute function suppress_redundant_updates_trigger()",
    "create rule mine as on insert to partbox.record do also select 1",
    "create index on partbox.record (event_id)",
    "create view pg_temp.mine as select * from partbox.record; select * from pg_temp.mine for update",
    "drop table partbox.parked",
    "drop schema partbox cascade",
    "alter schema partbox rename to mine",
    "set role postgres",
    "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
    " values ('x', 0, '1:1:', 0, 0)",
    "delete from partbox.partition",
    "insert into partbox.subscription (name) values ('mine')",
    "update partbox.subscription set type_filters = '{}'",
    "delete from partbox.subscription",
    "select partbox.subscription_pause('default')",
    "select partbox.subscription_drop('default')",
    "select partbox.subscription_replay('default', 1, null, true)",
    "update partbox.meta set xid = '3'",
    "update partbox.meta set key = 'other' where key = 'marker'",
    "insert into partbox.meta (key, value, xid) values ('marker', null, '3')",
    "delete from partbox.meta",
    "update partbox.idempotency set event_id = gen_random_uuid()",
    "update partbox.inbox set consumer = 'other'",
    "update partbox.attempt set error = null",
    "update partbox.progress_note set last_id = 0",
    "update partbox.action set who = 'other'",
    "update partbox.handler_limit set handler = 'other'",
    "insert into partbox.action (at, who, action) values ('2000-01-01', 'other', 'replay')",
    "copy partbox.record (xid, id, partition, event_id, event_type) from stdin",
    f"update partbox.instance set instance_id = {UUID}",
    "update partbox.instance set lease = '9 years'",
    "insert into partbox.instance (instance_id, subscription, node, hostname, pid, version, lease)"
    f" values ({UUID}, 'default', 'n', 'h', 1, '0', '9 s')",
)
FORBIDDEN_TO_PUBLISHERS = (
    "begin; lock table partbox.record in access exclusive mode",
    "begin; lock table partbox.partition in share mode",
    "select payload from partbox.record",
    "select payload_bytes, headers from partbox.record",
    "select id from partbox.record",
    "select count(*) from partbox.record",
    "select ctid from partbox.record",
    "select record from partbox.record",
    "table partbox.record_status",
    "table partbox.backlog",
    "table partbox.dead",
    "copy partbox.record to stdout",
    "delete from partbox.record",
    "delete from partbox.record where false",
    "select last_value from partbox.record_id_seq",
    "table partbox.partition",
    "update partbox.partition set last_id = 0",
    f"update partbox.partition set owner = {UUID}, epoch = epoch + 1",
    "select from partbox.partition for update",
    "table partbox.instance",
    "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
    " values ('default', 'n', 'h', 1, '0', '9 s')",
    "delete from partbox.instance",
    "table partbox.parked",
    "update partbox.parked set state = 'ready'",
    "delete from partbox.parked",
    "insert into partbox.parked values ('default', 2, 1, 'Order', '7', 'Placed', 'dead', true)",
    "table partbox.attempt",
    "insert into partbox.attempt (subscription, record_id, attempt, outcome) values ('default', 1, 1, 'done')",
    "table partbox.progress_note",
    "delete from partbox.progress_note",
    "table partbox.action",
    "insert into partbox.action (who, action) values ('other', 'replay')",
    "table partbox.handler_limit",
    "insert into partbox.handler_limit (subscription, handler, rate, changed_by) values ('default', 'charge', 1, 'me')",
    "delete from partbox.handler_limit",
    "table partbox.subscription",
    "table partbox.meta",
    "table partbox.inbox",
    f"insert into partbox.inbox (consumer, event_id) values ('billing', {UUID})",
    "select event_id from partbox.idempotency",
    "delete from partbox.idempotency",
    f"insert into partbox.idempotency (key, event_id, created_at) values ('x', {UUID}, 'infinity')",
    f"select partbox.claim('default', {UUID})",
    f"select partbox.heartbeat(array[{UUID}]::uuid[], array[false])",
    f"select partbox.bury(array[{UUID}]::uuid[], true)",
    "select partbox.plan('default', '{}', '{}', '{}')",
    f"select partbox.save('default', {UUID}, '{{1}}', '{{0}}', null, null, null, '{{f}}', '{{}}', null, '{{}}', true)",
    "select partbox.replay('default', '{1}')",
    "select partbox.discard('default', '{1}')",
    "select partbox.skip('default', 'Order', '7', 'x', 100)",
    "select partbox.retry_now('default', 'Order', '7')",
    "select partbox.purge_records(0, 0, 10, '{0,0}', false)",
    "select partbox.purge_records(0, 0, 10, '{0,0}', true)",
    "select partbox.purge_keys(0, 10, '{0,0}', false)",
    "select partbox.segment_add(90000000, 99000000)",
    "select partbox.segment_exclude(90000000, 99000000)",
    "select partbox.segment_prove()",
    "select partbox.segment_empty(0, 0)",
    "select partbox.segment_detach(0)",
    "select partbox.segment_drop()",
)
FORBIDDEN_TO_WORKERS = (
    f"insert into partbox.record ({COLUMNS}) values ({ROW})",
    "select partbox.publish('Forged', '1')",
    "select nextval('partbox.record_id_seq')",
    f"insert into partbox.idempotency (key, event_id) values ('x', {UUID})",
    f"insert into partbox.inbox values ('billing', {UUID}, 'infinity')",
    "select from partbox.record for update",
)
ALLOWED_TO_PUBLISHERS = (
    f"insert into partbox.record ({COLUMNS}) values ({ROW}), ({ROW})",
    "select partbox.publish('Placed', '1', 'Order', '7', idempotency_key => 'mine')",
    "select key from partbox.idempotency",
)


@pytest.mark.parametrize(
    ("who", "forbidden", "allowed"),
    [
        ("publisher", FORBIDDEN_TO_ALL + FORBIDDEN_TO_PUBLISHERS, ALLOWED_TO_PUBLISHERS),
        ("worker", FORBIDDEN_TO_ALL + FORBIDDEN_TO_WORKERS, ()),
        ("stranger", FORBIDDEN_TO_ALL + FORBIDDEN_TO_PUBLISHERS + FORBIDDEN_TO_WORKERS + ALLOWED_TO_PUBLISHERS, ()),
    ],
    ids=["publisher", "worker", "stranger"],
)
def test_each_role_is_refused_everything_that_it_was_not_granted(filled, who, forbidden, allowed):
    with psycopg.connect(filled.of(who), autocommit=True) as conn:
        assert [each for each in forbidden if not denied(conn, each)] == []
        assert [each for each in allowed if denied(conn, each)] == []


def refused(dsn: str, statement: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return denied(conn, statement)


def denied(conn: psycopg.Connection[Any], statement: str) -> bool:
    """True if privileges forbid it, False if it was done. Another error is the test's mistake, and is raised.

    What it was forbidden in, a transaction that it had begun itself say, is over then.
    """
    try:
        conn.execute(statement)
    except InsufficientPrivilege:
        conn.rollback()
        return True
    return False


def privileges(conn: psycopg.Connection[Any]) -> list[Any]:
    return conn.execute(
        "select oid::regclass::text, relacl::text from pg_class where relnamespace = 'partbox'::regnamespace"
        " union all select oid::regprocedure::text, proacl::text from pg_proc"
        " where pronamespace = 'partbox'::regnamespace"
        " union all select attrelid::regclass || '.' || attname, attacl::text"
        " from pg_attribute join pg_class c on c.oid = attrelid"
        " where attacl is not null and relnamespace = 'partbox'::regnamespace"
        " union all select nspname, nspacl::text from pg_namespace where nspname = 'partbox' order by 1"
    ).fetchall()


def test_granting_again_changes_nothing_and_many_may_do_so_at_once(cast, conn):
    before = privileges(conn)
    roles = Roles((cast.publisher,), (cast.worker,))
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: migrate(cast.dsn, roles=roles), range(6))) == [[]] * 6
    assert privileges(conn) == before
    assert grants.find_granted_roles(conn, "partbox") == roles


def test_a_migration_grants_its_new_objects_to_the_roles_that_had_grants(cast, conn):
    before = privileges(conn)
    conn.execute(sql.SQL("revoke select on partbox.backlog from {}").format(sql.Identifier(cast.worker)))
    conn.execute(
        sql.SQL("revoke usage on sequence partbox.record_id_seq from {}").format(sql.Identifier(cast.publisher))
    )
    conn.execute("drop function partbox.ring")
    assert privileges(conn) != before
    conn.execute(sql.SQL("grant execute on function partbox.new_event_id to {}").format(sql.Identifier(cast.stranger)))
    migrate(cast.dsn)
    assert refused(cast.of("worker"), "table partbox.backlog") is False
    assert refused(cast.of("stranger"), "table partbox.backlog")


def test_a_migration_forgets_roles_whose_grants_on_functions_were_revoked(cast, conn):
    json_one = "publish(text, json, text, text, text, anycompatible, timestamptz, interval, text)"
    for role, function in ((cast.publisher, json_one), (cast.worker, "save")):
        conn.execute(sql.SQL("revoke all on all tables in schema partbox from {}").format(sql.Identifier(role)))
        conn.execute(sql.SQL(f"revoke execute on function partbox.{function} from {{}}").format(sql.Identifier(role)))
    migrate(cast.dsn)
    assert grants.find_granted_roles(conn, "partbox") == grants.NO_ROLES
    assert refused(cast.of("worker"), "table partbox.partition")
    assert refused(cast.of("publisher"), f"insert into partbox.record ({COLUMNS}) values ({ROW})")


def test_without_roles_nobody_is_granted_and_nobody_shut_out(dsn, conn):
    assert grants.find_granted_roles(conn, "partbox") == grants.NO_ROLES
    assert conn.execute("select has_function_privilege('public', 'partbox.new_event_id()', 'execute')").fetchone() == (
        True,
    )


def test_a_role_that_does_not_exist_is_refused_and_nothing_is_made(empty_dsn):
    with pytest.raises(SchemaError, match=r"role 'Nobody' does not exist: create it first.*nothing was changed"):
        migrate(empty_dsn, roles=Roles(("postgres",), ("Nobody",)))
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regnamespace('partbox')").fetchone() == (None,)


def test_the_script_for_psql_grants_too(cast, empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(build_script("partbox", Roles((cast.publisher,), (cast.worker,))).encode())
        assert grants.find_granted_roles(conn, "partbox") == Roles((cast.publisher,), (cast.worker,))
        conn.execute("drop schema partbox cascade")


@pytest.mark.parametrize(
    ("privilege", "table"),
    [("insert", "instance"), ("insert, update", "parked"), ("select", "meta"), ("update", "meta")],
)
def test_a_privilege_on_a_table_or_on_its_columns_that_was_revoked_is_granted_again(cast, conn, privilege, table):
    rights = (
        "select (select array_agg(each::text order by each::text) from unnest(c.relacl) as each),"
        "       (select array_agg(attname || attacl::text order by attname) from pg_attribute where attrelid = c.oid)"
        f" from pg_class c where oid = 'partbox.{table}'::regclass"
    )
    before = conn.execute(rights).fetchone()
    conn.execute(
        sql.SQL("revoke {} on {} from {}").format(
            sql.SQL(privilege), sql.Identifier("partbox", table), sql.Identifier(cast.worker)
        )
    )
    assert conn.execute(rights).fetchone() != before
    assert migrate(cast.dsn, roles=Roles(workers=(cast.worker,))) == []
    assert conn.execute(rights).fetchone() == before


FOR_THE_OWNER = {
    "schema_state",
    "subscription_drop",
    "subscription_pause",
    "subscription_purged",
    "subscription_replay",
}


def test_every_function_is_granted_to_a_role_or_reserved_for_the_owner_and_none_is_public(cast, conn):
    """Who adds one decides who may call it: in `sql/grants`, or here."""
    found = conn.execute(
        "select proname, coalesce(proacl::text, '{=X}') from pg_proc where pronamespace = 'partbox'::regnamespace"
    ).fetchall()
    ungranted = {name for name, acl in found if cast.publisher not in acl and cast.worker not in acl}
    assert ungranted == FOR_THE_OWNER
    assert [name for name, acl in found if "{=X" in acl or ",=X" in acl] == []


def test_no_function_runs_as_its_owner_or_resolves_names_in_schemas_that_others_can_fill(cast, conn):
    """Some in SQL take the path of who calls them: they are inlined, and name what is not PostgreSQL's in full."""
    found = conn.execute(
        "select proname, prosecdef, lanname, proconfig from pg_proc p join pg_language l on l.oid = p.prolang"
        " where pronamespace = 'partbox'::regnamespace"
    ).fetchall()
    # Attaching, truncating and dropping takes owning the log, or the sequence. These take numbers, never a name.
    # Locking a record takes a right to change it.
    assert sorted(name for name, definer, _, _ in found if definer) == [
        "cancel", "life_anew", "may_start",
        "segment_add", "segment_detach", "segment_drop", "segment_empty", "segment_exclude", "segment_prove",
    ]  # fmt: skip
    fixed = "search_path=pg_catalog, pg_temp"
    assert [name for name, _, language, config in found if language == "plpgsql" and fixed not in (config or [])] == []
    inlined = {name for name, _, language, config in found if language == "sql" and fixed not in (config or [])}
    assert inlined == {"expired_dead", "new_event_id", "publish"}


def test_a_publisher_who_may_create_functions_cannot_have_the_worker_run_them(cast, conn):
    """An overload with exactly these argument types would be preferred to PostgreSQL's own, of any types."""
    conn.execute("grant create on schema public to public")
    with psycopg.connect(cast.of("publisher"), autocommit=True) as own:
        for arguments in ("text, text", "text, bigint, bigint", "text, integer"):
            own.execute(
                f"create function public.format({arguments}) returns text language plpgsql as"
                " $$ begin raise exception 'hijacked by %', current_user; end $$"
            )
    with psycopg.connect(cast.of("worker"), autocommit=True) as own:
        with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
            own.execute("select format('%s', 'x'::text)")
        for purge in ("purge_dead(0, 10, '{0,0}', false)", "purge_keys(0, 10, '{0,0}', false)"):
            own.execute(f"select partbox.{purge}")


@pytest.fixture
def guest(empty_dsn: str) -> Iterator[str]:
    """A DSN of the empty database for the role `guest`, which may make no schema in it."""
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create role guest login")
        try:
            yield make_conninfo(empty_dsn, user="guest")
        finally:
            conn.execute("drop owned by guest cascade; drop role guest")


def migrate_by_script(dsn: str, schema: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(build_script(schema).encode())


def migrate_by_statements(dsn: str, schema: str) -> None:
    with psycopg.connect(dsn) as conn:
        for text in build_statements(schema):
            conn.execute(text.encode())


def migrate_in_a_transaction(dsn: str, schema: str) -> None:
    with psycopg.connect(dsn) as conn:
        migrate_in(conn, schema)


MAKERS = [migrate, migrate_inbox, migrate_by_script, migrate_by_statements, migrate_in_a_transaction]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("schema", ["public", "s" * 63, "Odd \"name\"-'x' %"])
def test_a_schema_that_was_given_to_a_role_is_filled_without_create_on_the_database(
    empty_dsn: str, guest: str, schema: str, make: Callable[[str, str], Any]
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        name = sql.Identifier(schema)
        conn.execute(sql.SQL("drop schema if exists {0}; create schema {0} authorization guest").format(name))
    make(guest, schema)
    if make is not migrate_inbox:
        outbox = Outbox(guest, schema=schema)
        with outbox.transaction() as tx:
            outbox.publish(tx, "Placed", 1)


@pytest.mark.parametrize("make", MAKERS)
def test_a_role_that_may_not_create_the_schema_gets_an_error_that_says_how_it_can_be_created(
    empty_dsn: str, guest: str, make: Callable[[str, str], Any]
) -> None:
    with pytest.raises((SchemaError, InsufficientPrivilege)) as refused:
        make(guest, 'o"x')
    assert 'schema "o""x" does not exist' in str(refused.value)
    assert "role guest may not create it" in str(refused.value)
    assert '`create schema "o""x" authorization guest`' in str(refused.value)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute('create schema "o""x" authorization guest')
    make(guest, 'o"x')


def test_a_role_that_may_not_create_in_the_schema_gets_an_error_of_one_line(empty_dsn: str, guest: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create schema partbox")
    for grant in ("select 1", "grant usage on schema partbox to guest"):
        with psycopg.connect(empty_dsn, autocommit=True) as conn:
            conn.execute(grant)
        with pytest.raises(
            SchemaError, match="permission denied for schema partbox: have the object's owner"
        ) as refused:
            migrate(guest)
        assert "\n" not in str(refused.value)
