"""Names and values that would be SQL if they were put into it: each is refused in a line, or means just itself."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from roles import each_of
from run_size import examples

from partbox import Event, Outbox, inbox
from partbox.cli import main
from partbox.db.schema.grants import Roles, find_granted_roles
from partbox.db.schema.migrate import migrate
from partbox.db.sql import load_query
from partbox.errors import PartboxError, PublishError

HOSTILE = (
    "o'x\"; drop table canary; --",
    '"; drop table canary; --',
    "'; drop table canary; --",
    "$$; drop table canary; $$",
    "%s %(x)s %% %",
    "{x} {{y}} {schema} {0}",
    "back\\slash\\' or 1=1; drop table canary; --",
    "E'\\'; drop table canary; --",
    'public".canary',
    "select",
    " a\tb\nc ",
    "é\u202e\u0000\ufeff\U0001f600".replace("\0", ""),
    "x" * 63,
    "/* drop",
    "--help",
)
TOGETHER = "o'x\"; drop table canary; -- %s %(x)s {x} {schema} \\' or 1=1"
"""Quotes, placeholders, braces and a backslash in one name."""
NAMES = (TOGETHER, "x" * 63)
ALONE = [pytest.param(name, marks=pytest.mark.soak) for name in (HOSTILE[0], *HOSTILE[4:7])]
REFUSED = ("", "x" * 64, "é" * 32, "nul\0; drop table canary", "\ud800")

CATALOGUE = """
with found (kind, name, more) as (
select 'schema', nspname::text, coalesce(nspacl::text, '') from pg_namespace where nspname !~ '^pg_(toast_)?temp_'
union all select 'relation', relnamespace::regnamespace || '.' || relname, relkind::text || coalesce(relacl::text, '')
            from pg_class where relnamespace <> 'pg_toast'::regnamespace
union all select 'function', pronamespace || ' ' || proname || ' ' || proargtypes::text, coalesce(proacl::text, '')
            from pg_proc
union all select 'role', rolname::text, rolsuper::text from pg_roles
union all select 'setting', setdatabase::text, setconfig::text from pg_db_role_setting
union all select 'canary', song, '' from public.canary)
"""
ALL = CATALOGUE + "select * from found order by 1, 2, 3"
DIGEST = CATALOGUE + "select md5(string_agg(f::text, ',' order by f::text collate \"C\")) from found f"

TEXTS = st.one_of(
    st.sampled_from([*HOSTILE, *REFUSED]),
    st.text(max_size=80),
    st.text(alphabet="'\";\\%{}()$-/* \n\0as1", max_size=30),
)
many = settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def unharmed(conn: psycopg.Connection[Any]) -> Iterator[Callable[[], None]]:
    """Says whether the canary sings, and everything else is as it was; asked once more at the end."""
    conn.execute("create table public.canary as select 'tweet' as song")

    def look(how: str) -> list[Any]:
        return conn.execute(how.encode()).fetchall()

    before, digest = look(ALL), look(DIGEST)

    def unharmed() -> None:
        if look(DIGEST) != digest:
            assert look(ALL) == before
            raise AssertionError("something was harmed for a moment")

    yield unharmed
    unharmed()


@pytest.fixture
def said(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command; its exit code and what it says. What cannot be done is said in one line, never by a traceback."""
    monkeypatch.setenv("PARTBOX_DSN", dsn)

    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        code, (out, err) = exit.value.code or 0, capsys.readouterr()
        assert code in (0, 1, 2)
        assert "Traceback" not in err
        assert code != 1 or err == "" or err.count("\n") == 1, err
        return f"{code} {out}{err}"

    return said


@pytest.mark.parametrize("name", [*NAMES, *ALONE], ids=range(len(NAMES) + len(ALONE)))
def test_a_schema_may_have_any_name(dsn, conn, unharmed, said, name):
    chosen = ("--schema", name)
    assert said("init", *chosen).startswith("0 ")
    outbox = Outbox(dsn, schema=name)
    seen = []
    outbox.on("Placed")(lambda event: seen.append(event.payload))
    with outbox.transaction() as tx:
        outbox.publish(tx, "Placed", 1, idempotency_key="k")
        outbox.publish_many(tx, [Event("Placed", number) for number in range(20)])
    assert outbox.drain()
    assert len(seen) == 21
    for command in ("status", "doctor", "dead list", "purge --dry-run"):
        answer = said(*command.split(), *chosen)
        assert answer[0] == "0" or command == "doctor", answer
    assert said("migrate", *chosen).startswith("0 ")
    conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def test_a_schema_name_that_postgresql_would_change_is_refused(unharmed, said):
    for name in (*REFUSED[:3], REFUSED[4], "pg_mine", HOSTILE[3]):
        assert said("init", f"--schema={name}")[0] in "12", ascii(name)
        unharmed()


@many
@given(name=TEXTS)
def test_a_name_in_a_statement_stays_a_name(conn, unharmed, name):
    for statement in ("stats_subscriptions", "marker", "roles_granted"):
        try:
            conn.execute(load_query(statement, name), {})
        except (psycopg.Error, UnicodeEncodeError):
            continue
    unharmed()


@pytest.mark.parametrize("name", [*NAMES, *ALONE], ids=range(len(NAMES) + len(ALONE)))
def test_a_role_may_have_any_name(dsn, conn, said, name):
    each_of(conn, "create role {} login", [name])
    try:
        assert said("init", "--publisher-role", name, f"--worker-role={name}").startswith("0 ")
        assert find_granted_roles(conn, "partbox") == Roles((name,), (name,))
        as_role = psycopg.conninfo.make_conninfo(dsn, user=name)
        with Outbox(as_role).transaction() as tx:
            Outbox(as_role).publish(tx, "Placed", 1)
    finally:
        each_of(conn, "drop owned by {}", [name])
        each_of(conn, "drop role {}", [name])


def test_a_name_that_is_no_role_is_refused_in_one_line(dsn, unharmed):
    for name in (*HOSTILE[:10], *REFUSED, "public", "postgres, canary", "current_user"):
        with pytest.raises(PartboxError, match="role") as refused:
            migrate(dsn, roles=Roles((name,), ("postgres",)))
        assert "\n" not in str(refused.value), ascii(name)
        unharmed()


@many
@given(type=TEXTS, aggregate_type=TEXTS, aggregate_id=TEXTS, key=TEXTS)
def test_hostile_texts_of_an_event_are_stored_unchanged_or_refused(
    dsn, conn, unharmed, type, aggregate_type, aggregate_id, key
):
    outbox = Outbox(dsn)
    try:
        event = Event(type, key, aggregate_type=aggregate_type, aggregate_id=aggregate_id, headers={"h": key})
        with conn.transaction(force_rollback=True):
            outbox.publish(conn, event)
            found = conn.execute(
                "select event_type, aggregate_type, aggregate_id, payload #>> '{}', headers ->> 'h' from partbox.record"
            ).fetchall()
            assert found == [(type, aggregate_type, aggregate_id, key, key)]
            assert outbox.publish(conn, Event("Placed", 1, idempotency_key=key))
            assert outbox.publish(conn, Event("Placed", 1, idempotency_key=key)) is None
    except PublishError:
        pass
    unharmed()


@many
@given(name=TEXTS, other=TEXTS)
def test_operator_calls_with_a_hostile_name_find_nothing_or_are_refused(dsn, conn, unharmed, name, other):
    outbox = Outbox(dsn)
    asked: list[Callable[[], object]] = [
        lambda: outbox.dead.list(event_type=name, aggregate_type=other, aggregate_id=name),
        lambda: outbox.dead.replay_all(event_type=name),
        lambda: outbox.blocked.retry_now(name, other),
        lambda: outbox.blocked.skip(name, other),
        lambda: outbox.subscriptions.pause(name),
        lambda: outbox.subscriptions.drop(name) if name != "default" else None,
    ]
    for ask in asked:
        try:
            assert not ask()
        except PartboxError:
            continue
    try:
        with conn.transaction(force_rollback=True):
            assert inbox.first_time(conn, "00000000-0000-0000-0000-000000000009", name)
            assert conn.execute("select consumer from partbox.inbox").fetchall() == [(name,)]
    except PartboxError:
        pass
    unharmed()


@settings(many, max_examples=examples(20))
@given(name=TEXTS, type=TEXTS)
def test_a_subscription_is_made_under_its_very_name_or_refused(dsn, conn, unharmed, name, type):
    outbox = Outbox(dsn)
    try:
        outbox.subscriptions.create(name, types=[type])
    except PartboxError:
        pass
    else:
        assert ((name, [type]),) == tuple(
            conn.execute("select name, type_filters from partbox.subscription where name <> 'default'").fetchall()
        )
        assert {each.name for each in outbox.subscriptions.list()} == {"default", name}
        outbox.subscriptions.pause(name)
        outbox.subscriptions.drop(name)
    unharmed()


@pytest.mark.parametrize(
    "text",
    [
        TOGETHER,
        "--help",
        "\ud800",
        *(pytest.param(text, marks=pytest.mark.soak) for text in (HOSTILE[0], HOSTILE[4], HOSTILE[6], "")),
    ],
    ids=ascii,
)
def test_an_argument_of_a_command_is_only_text(unharmed, said, text):
    for command in (
        ("dead", "list", f"--type={text}", f"--aggregate-type={text}"),
        ("dead", "replay", "--", text),
        ("blocked", "skip", f"--reason={text}", "--", text, text),
        ("blocked", "retry", "--", text, text),
        ("subscription", "pause", "--", text),
        ("subscription", "replay", f"--from={text}", "--", "default"),
        ("status", f"--subscription={text}"),
        ("purge", f"--retain-done={text}"),
        ("init", f"--worker-role={text}"),
    ):
        assert said(*command)[0] in "012", command
