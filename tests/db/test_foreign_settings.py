"""A database or a role may have any setting that changes texts, transactions, plans or limits: nobody cares."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from server_versions import can_set

from partbox import Dead, Event, Outbox, inbox
from partbox.cli import main
from partbox.db.connect import BinaryCursor, connect

TEXTS = {
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Pacific/Kiritimati",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "xmlbinary": "hex",
    "lc_monetary": "C",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "backslash_quote": "off",
    "quote_all_identifiers": "on",
    "search_path": "nowhere",
}
TRANSACTIONS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "row_security": "off",
    "session_replication_role": "replica",
    "synchronous_commit": "off",
    "constraint_exclusion": "on",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "<-11:30>+11:30",
}
POOLED = {name: value for name, value in TRANSACTIONS.items() if name != "default_transaction_isolation"}
"""Behind a pooler the isolation is what the role says; doctor tells of a wrong one."""
PLANS = {
    **dict.fromkeys(("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_nestloop"), "off"),
    **dict.fromkeys(("enable_hashjoin", "enable_sort", "enable_memoize", "enable_material"), "off"),
    "from_collapse_limit": "1",
    "join_collapse_limit": "1",
    "plan_cache_mode": "force_generic_plan",
    "jit_above_cost": "0",
    "default_statistics_target": "1",
    "work_mem": "64kB",
    "DateStyle": "Postgres, MDY",
    "TimeZone": "America/Caracas",
}
LIMITS = {
    "statement_timeout": "20ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "100ms",
    "idle_session_timeout": "100ms",
    "DateStyle": "ISO, YMD",
}
TIMED = {"transaction_timeout": "2s"}
"""From PostgreSQL 17 on. Longer than the others: the statement that lifts it is under it, on the slowest machine."""

THEN = datetime(2031, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
CASES = {
    "texts, transactions and plans": (TEXTS | TRANSACTIONS | PLANS, False, False),
    "texts and transactions, pooler": (POOLED | TEXTS, True, True),
    "limits": (LIMITS, True, False),
}
ALONE = {
    "texts": (TEXTS, False, False),
    "texts, pooler": (TEXTS, True, True),
    "transactions": (TRANSACTIONS, False, False),
    "transactions, pooler": (POOLED, True, True),
    "plans": (PLANS, False, False),
}
"""Each kind without the others, which could hide something of it: dates, say, are in one form only at a time."""


def settle(dsn: str, settings: dict[str, str], by_role: bool) -> None:
    """Every session of the database from now on has these."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        whom = sql.SQL("role postgres in database") if by_role else sql.SQL("database")
        more = TIMED if settings is LIMITS and conn.info.server_version >= 170_000 else {}
        conn.execute("set statement_timeout = 0")
        for name, value in (settings | more).items():
            if not can_set(conn, name):
                continue
            found = sql.SQL("none") if value == "" else sql.Literal(value)
            conn.execute(
                sql.SQL("alter {} {} set {} = {}").format(
                    whom, sql.Identifier(conn.info.dbname), sql.Identifier(name), found
                )
            )


@pytest.fixture
def conn(fresh_dsn):
    """A session from before the settings, which has none of them."""
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def run(capsys):
    """Runs a command with `--json`; what it answers."""

    def run(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        out, err = capsys.readouterr()
        assert (exit.value.code in (0, 1), err) == (True, ""), arguments
        return json.loads(out) if "--json" in arguments else out

    return run


def publish(dsn: str, outbox: Outbox, unlimited: bool) -> None:
    """In Python and in SQL, on connections of the application's own, which have all these settings, too."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name in (each for each in (*LIMITS, *TIMED) if unlimited and each.endswith("timeout")):
            with suppress(psycopg.errors.UndefinedObject):  # one that this version does not have
                conn.execute(f"set {name} = 0")  # what an application's own transactions may last is its own matter
        with conn.transaction():
            write(conn, outbox)


def write(conn: psycopg.Connection, outbox: Outbox) -> None:
    outbox.publish(conn, "Done", {"n": 0}, occurred_at=THEN)
    outbox.publish(conn, "Done", b"\x00\\'\xff", idempotency_key="k\\'", aggregate_id="a\\'b")
    outbox.publish(conn, "Done", {"n": 0}, idempotency_key="k\\'")
    outbox.publish(conn, "Later", 1, deliver_after=timedelta(days=40, hours=1, microseconds=7))
    outbox.publish(conn, "Later", 2, available_at=THEN)
    many = [("Done", {"n": n}) for n in range(1, 10)] + [("Failing", {"n": 1}), ("Dying", {"n": 2})]
    outbox.publish_many(conn, [Event(kind, data, aggregate_id=f"{kind}\\", occurred_at=THEN) for kind, data in many]
                        + [Event("Later", 3, deliver_after=86_400 * 41), Event("Effect", {"n": 5})])  # fmt: skip
    conn.execute("select partbox.publish('Done', %s::json)", [json.dumps({"n": 10, "t": "\\ u0 \\u \u00e9"})])
    conn.execute("select partbox.publish('Later', '4', available_at => %s)", [THEN])
    conn.execute("select partbox.publish('Later', '5', deliver_after => make_interval(days => 40))")
    for bad in (r'"\u0000"', r'"\ud800"'):
        with pytest.raises(psycopg.errors.InvalidParameterValue), conn.transaction():
            conn.execute("select partbox.publish('Done', %s::json)", [bad])
    first = [inbox.first_time(conn, "00000000-0000-0000-0000-000000000001", "c\\") for _ in range(2)]
    assert first == [True, False]


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.soak) for case in ALONE)])
def test_a_whole_small_scenario_is_the_same_whatever_the_database_or_role_is_set_to(fresh_dsn, conn, run, caplog, case):
    settings, by_role, pooler = (CASES | ALONE)[case]
    dsn, began = fresh_dsn, datetime.now(UTC)
    conn.execute("create table public.effect (n int)")
    settle(dsn, settings, by_role)
    outbox, done = Outbox(dsn, pooler=pooler), []

    @outbox.on("Done")
    def handle(event):
        done.append((event.payload["n"] if event.content_type is None else event.payload, event.occurred_at))

    outbox.on("Failing", retry="fixed:600")(lambda event: 1 / 0)
    outbox.on("Dying")(lambda event: Dead("at 'once' \\"))

    @outbox.on("Effect", transactional=True)
    def effect(event, tx):
        tx.execute("insert into public.effect values (%s)", [event.payload["n"]])

    publish(dsn, outbox, settings is LIMITS)
    with outbox.worker() as worker:
        assert not worker.wait_until_empty(60)  # what fails is due in ten minutes
    assert {each for each, _ in done} == {*range(11), b"\x00\\'\xff"}
    assert sum(when == THEN for _, when in done) == 10
    assert conn.execute("select n from public.effect").fetchall() == [(5,)]
    rows = conn.execute(
        "select r.payload::text, extract(epoch from k.due_at)::float8,"
        "       extract(epoch from k.due_at - k.parked_at)::float8"
        "  from partbox.parked k join partbox.record r on r.id = k.record_id where k.state in ('scheduled', 'retrying')"
    ).fetchall()
    due = {payload: (at, after) for payload, at, after in rows}
    assert due["1"][1] == pytest.approx(40 * 86_400 + 3_600, abs=60)
    assert due["5"][1] == pytest.approx(40 * 86_400, abs=60)
    assert due["3"][1] == pytest.approx(41 * 86_400, abs=60)
    assert due["2"][0] == due["4"][0] == THEN.timestamp()
    assert due['{"n":1}'][1] == pytest.approx(600, abs=5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARTBOX_POOLER", str(pooler).lower())
        commands(run, ["--dsn", dsn], began)
    assert outbox.stats.records()["dead"] == 1
    (dead,) = outbox.dead.list()
    assert dead.error == "at 'once' \\"
    (blocked,) = outbox.blocked.list()
    assert (blocked.due_at - blocked.blocked_since).total_seconds() == pytest.approx(600, abs=5)
    troubles = [each.getMessage() for each in caplog.records if each.levelname in ("ERROR", "CRITICAL") and
                getattr(each, "event", "") not in ("partbox.dead",)]  # fmt: skip
    assert troubles == []


def commands(run, where: list[str], began: datetime) -> None:
    """What operators ask and do."""

    def moment(text: str) -> datetime:
        assert text.endswith(("+00:00", "Z"))
        return datetime.fromisoformat(text)

    def is_now(text: str) -> bool:
        return began <= moment(text) <= datetime.now(UTC)

    status = run("status", "--json", *where)
    assert status["schema"] == "partbox"
    report = run("doctor", *where)
    assert "could not be read" not in report
    (dead,) = run("dead", "list", "--json", *where)
    assert is_now(dead["died_at"])
    detail = run("dead", "show", str(dead["record_id"]), "--payload", "--json", *where)
    assert moment(detail["occurred_at"]) == THEN
    assert is_now(detail["published_at"])
    (blocked,) = run("blocked", "list", "--json", *where)
    assert blocked["event_type"] == "Failing"
    run("subscription", "create", "late", "--from", datetime.now(UTC).isoformat(), *where)
    run("subscription", "create", "all", "--from", "beginning", *where)
    listed = {each["name"]: each for each in run("subscription", "list", "--json", *where)}
    assert is_now(listed["late"]["created_at"])
    assert listed["late"]["pending"] == 0
    assert listed["all"]["pending"] > 10
    run("subscription", "pause", "all", *where)
    assert run("purge", "--dry-run", *where)


def test_results_are_binary_on_our_own_connections_and_unchanged_on_those_of_the_application(fresh_dsn):
    dsn = fresh_dsn
    settle(dsn, {"DateStyle": "German"}, False)
    with connect(dsn, lease=6) as conn:
        assert isinstance(conn.execute("select now()"), BinaryCursor)
        assert conn.execute("select timestamptz '2020-01-01 00:00Z'").fetchone() == (datetime(2020, 1, 1, tzinfo=UTC),)
        conn.execute("create type public.mood as enum ('fine')")
    with connect(dsn, lease=6, is_lent=True) as conn:
        assert conn.execute("select 'fine'::public.mood").fetchone() == ("fine",)


@pytest.mark.parametrize(
    "settings",
    [
        TEXTS | TRANSACTIONS | PLANS,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (TEXTS, TRANSACTIONS, PLANS)),
    ],
    ids=["all", "texts", "transactions", "plans"],
)
def test_a_schema_is_made_and_migrated_again_in_a_database_with_foreign_settings(empty_dsn, run, settings):
    settle(empty_dsn, settings, False)
    run("init", "--dsn", empty_dsn)
    run("migrate", "--dsn", empty_dsn)
    assert "could not be read" not in run("doctor", "--dsn", empty_dsn)
