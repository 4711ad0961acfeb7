"""The ground of the other tests: their databases, their waiting and the check that nothing is left behind."""

import asyncio
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
import server_versions
import waiting
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from servers import OwnServer, new_database
from slowest_tests import LOAD, SHARED, Pace
from waiting import eventually

from partbox.embedded.server import Server
from partbox.testing.databases import Shelf

TESTS = Path(__file__).parents[1]
LEAKY = """
import subprocess, sys, threading, time
import conftest, slowest_tests

conftest.PATIENCE = 0.2
slowest_tests.SECONDS = 0.1
slowest_tests.CROWD = 1_000

def test_a_process():
    subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

def test_a_thread():
    threading.Thread(target=threading.Event().wait, args=(3,)).start()

def test_neither():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    subprocess.run(["true"])

def test_a_nap():
    time.sleep(0.2)
"""


@pytest.fixture
def shelf(server: Server, template: str) -> Iterator[Shelf]:
    """One beside that of the other tests."""
    shelf = Shelf(server.dsn, template)
    yield shelf
    shelf.close()


def state(dsn: str) -> tuple[Any, ...]:
    """The state that migrations leave: rows, sequences, what is known of tables for plans, and who is there."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        tables = conn.execute(
            "select relname, reltuples, relpages from pg_class"
            " where relnamespace = 'partbox'::regnamespace and relkind = 'r' order by relname"
        ).fetchall()
        rows = {name: conn.execute(f"select * from partbox.{name} order by 1, 2").fetchall() for name, *_ in tables}
        return (
            tables,
            rows,
            conn.execute("select * from pg_sequences where schemaname = 'partbox' order by sequencename").fetchall(),
            conn.execute(
                "select tablename, attname, n_distinct from pg_stats where schemaname = 'partbox' order by 1, 2"
            ).fetchall(),
            conn.execute("select xmin = xid::xid from partbox.meta where key = 'marker'").fetchall(),
            conn.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            ).fetchall(),
        )


USES = """
insert into partbox.record (partition, event_id, event_type) values (1, gen_random_uuid(), 'Placed');
update partbox.partition set epoch = 7, owner = gen_random_uuid();
delete from partbox.partition where partition < 9;
insert into partbox.subscription (name) values ('audit');
insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)
values ('default', 1, 1, 'Order', 'Placed', 'dead', false);
insert into partbox.inbox (consumer, event_id) values ('shop', gen_random_uuid());
insert into partbox.idempotency (key, event_id) values ('key', gen_random_uuid());
insert into partbox.instance (subscription, node, hostname, pid, version, lease)
values ('default', '', '', 1, '', '1 s')
"""
CHANGES = {
    "a table": "create table mine ()",
    "a table that is gone again": "create table mine (); drop table mine",
    "a schema": "create schema mine",
    "the schema's name": "alter schema partbox rename to mine",
    "a column": "alter table partbox.record add mine int",
    "a table's settings": "alter table partbox.partition set (fillfactor = 70)",
    "a function": "create or replace function partbox.new_event_id() returns uuid language sql as 'select null::uuid'",
    "a right": "grant select on partbox.record to public",
    "statistics": "insert into partbox.inbox values ('shop', gen_random_uuid()); analyze partbox.inbox",
    "a truncated table": "truncate partbox.record",
    "the marker": "update partbox.meta set value = value",
    "a setting": "alter database {} set datestyle = 'German'",
    "a right on the database": "revoke connect on database {} from public",
    "a prepared transaction": "begin; select pg_current_xact_id(); prepare transaction 'left open'",
    "what is counted": "select pg_stat_reset()",
}


def test_a_database_is_reset_in_place_to_its_state_after_migrations(shelf: Shelf) -> None:
    dsn = shelf.lend()
    before = state(dsn)
    for _ in range(2):
        with psycopg.connect(dsn) as conn:
            conn.execute(USES)
        left = psycopg.connect(dsn)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("select nextval('partbox.record_id_seq') from generate_series(1, 50)")
            conn.execute("update partbox.partition set epoch = 8")
        shelf.take_back()
        with left, pytest.raises(psycopg.OperationalError):
            left.execute("select 1")
        assert (shelf.lend(), state(dsn)) == (dsn, before)
    assert shelf.clones == 1


def test_the_next_test_gets_a_fresh_database_if_more_than_rows_has_changed(shelf: Shelf) -> None:
    lent = shelf.lend()
    for what, change in CHANGES.items():
        used = lent
        with psycopg.connect(used, autocommit=True) as conn:
            for statement in change.split(";"):
                conn.execute(sql.SQL(statement).format(sql.Identifier(conn.info.dbname)))
        shelf.take_back()
        lent = shelf.lend()
        assert lent != used, what
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            pytest.fail(f"{what}: {psycopg.connect(used)}")


def test_a_test_may_end_every_session_of_the_server(shelf: Shelf) -> None:
    dsn = shelf.lend()
    with psycopg.connect(dsn, autocommit=True) as conn:
        everybody = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        conn.execute(f"{everybody} and backend_type = 'client backend'")
    shelf.take_back()
    assert shelf.lend() == dsn


def test_a_late_session_in_a_database_that_was_reset_does_not_meet_the_next_test(shelf: Shelf) -> None:
    used = shelf.lend()
    shelf.take_back()
    with psycopg.connect(used) as ghost:
        assert shelf.lend() != used
        with pytest.raises(psycopg.OperationalError):
            ghost.execute("select 1")


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_has_a_database_of_its_own_with_the_schema(turn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("create table mine ()")
    assert conn.execute("select count(*) from partbox.partition").fetchone() == (256,)


def test_the_empty_database_has_no_schema(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regclass('partbox.record')").fetchone() == (None,)


def test_the_database_is_dropped_even_if_a_session_still_uses_it(server: Server, template: str) -> None:
    with new_database(server.dsn, template) as dsn:
        conn = psycopg.connect(dsn, autocommit=True)
    with conn, pytest.raises(psycopg.OperationalError):
        conn.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_a_test_may_kill_a_server_of_its_own(own_server: OwnServer) -> None:
    own_server.server.kill()
    own_server.server.start()
    with psycopg.connect(own_server.dsn) as conn:
        assert conn.execute("select count(*) from partbox.partition").fetchone() == (256,)
    own_server.server.kill()


def test_the_server_can_prepare_transactions(dsn: str) -> None:
    assert conninfo_to_dict(dsn)["host"]
    with psycopg.connect(dsn) as conn:
        conn.tpc_begin(conn.xid(1, "global", "branch"))
        conn.execute("insert into partbox.meta (key) values ('two-phase')")
        conn.tpc_prepare()
        conn.tpc_commit()


def test_eventually_returns_the_first_truthy_answer() -> None:
    answers = iter([0, None, "", 7])
    assert eventually(lambda: next(answers), interval=0) == 7


def test_eventually_says_what_it_saw_last() -> None:
    with pytest.raises(AssertionError, match=r"did not happen within 0\.05 s; last answer: 0"):
        eventually(lambda: 0, timeout=0.05)


def test_eventually_asks_again_after_an_assertion_failed() -> None:
    seen: list[int] = []

    def three() -> bool:
        seen.append(1)
        assert len(seen) == 3, f"seen {len(seen)}"
        return True

    assert eventually(three, interval=0)
    seen.clear()
    with pytest.raises(AssertionError, match="seen 1"):
        eventually(lambda: (seen.clear(), three()), timeout=0)


def test_eventually_waits_longer_for_a_value_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None))
    steps: list[int] = []

    def ten() -> bool:
        steps.append(1)
        return len(steps) == 10

    assert eventually(ten, timeout=3, moves=lambda: len(steps))
    steps.clear()
    with pytest.raises(AssertionError, match="did not happen within 3 s"):
        eventually(ten, timeout=3, moves=lambda: 7)


def test_a_task_left_by_another_test_does_not_appear_in_the_log_of_this_test(
    caplog: pytest.LogCaptureFixture, collect: Callable[[], int]
) -> None:
    async def fails() -> None:
        raise ValueError("forgotten")

    async def forgets() -> "weakref.ref[asyncio.Task[None]]":
        task = asyncio.create_task(fails())
        await asyncio.wait([task])
        return weakref.ref(task)

    forgotten = asyncio.run(forgets())
    collect()
    assert forgotten() is None
    logging.getLogger("partbox").error("its own")
    assert caplog.messages == ["its own"]


def test_a_test_that_leaves_a_process_or_a_thread_behind_fails_and_a_slow_one_is_named(tmp_path: Path) -> None:
    leaky = tmp_path / "test_leaky.py"
    leaky.write_text(LEAKY)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "conftest",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            leaky,
        ],
        env=os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line.split(" - ")[0] for line in result.stdout.splitlines() if line.startswith("ERROR")]
    assert errors == ["ERROR test_leaky.py::test_a_process", "ERROR test_leaky.py::test_a_thread"], result.stdout
    said = [line for line in result.stdout.splitlines() if line.startswith("TOO LONG: test_leaky.py::test_a_nap took")]
    assert len(said) == 1, result.stdout


def report(when: str, duration: float, shared: float = 0, load: float = 0) -> pytest.TestReport:
    given = [(SHARED, shared), (LOAD, load)]
    return pytest.TestReport("test", ("", 0, ""), {}, "passed", None, cast(Any, when), [], duration, 0, 0, given)


CORES = os.cpu_count() or 1


@pytest.mark.parametrize(
    ("reports", "judged", "said"),
    [
        ([report("setup", 1), report("call", 18), report("teardown", 9)], True, False),
        ([report("setup", 5), report("call", 18)], True, True),
        ([report("setup", 5), report("call", 18)], False, False),
        ([report("setup", 5, shared=4), report("call", 18)], True, False),
        ([report("setup", 5), report("call", 18, load=2 * CORES)], True, True),
        ([report("setup", 5), report("call", 18, load=3 * CORES)], True, False),
        ([report("setup", 5), report("call", 28, load=3 * CORES)], True, True),
    ],
    ids=["in time", "too long", "of the soak", "made for others too", "alone", "on a loaded machine", "even there"],
)
def test_a_run_names_tests_that_took_over_20_seconds(
    reports: list[pytest.TestReport], judged: bool, said: bool
) -> None:
    pace = Pace(judged)
    for each in reports:
        pace.pytest_runtest_logreport(each)
    assert [name for name, _ in pace.too_long()] == ["test"] * said


def test_a_test_whose_process_died_is_counted_with_the_time_it_took_so_far() -> None:
    pace = Pace(judged=True)
    pace.pytest_runtest_logreport(pytest.TestReport("test", ("", 0, ""), {}, "failed", None, "call", [], 3))
    assert [(name, taken.seconds) for name, taken in pace.taken.items()] == [("test", 3)]


def test_the_folders_and_files_that_run_on_one_server_version_exist() -> None:
    assert {name for name in server_versions.ONE if not (TESTS / name).exists()} == set()
