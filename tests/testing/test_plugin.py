"""The pytest plugin, in runs of pytest as a user's are."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

SHOP = """
from partbox import Fixed, Outbox

outbox = Outbox("postgresql:///production", retry=Fixed(60), schema="shop_outbox")

@outbox.on("OrderPlaced")
def bill(event):
    if event.payload["total"] < 0:
        raise ValueError("a negative total")

def place(conn, number, total):
    conn.execute("insert into shop.customer (name) values ('Ada') on conflict do nothing")
    conn.execute("insert into shop.order (number, total, customer) values (%s, %s, 'Ada')", [number, total])
    outbox.publish(conn, "OrderPlaced", {"total": total}, aggregate_type="Order", aggregate_id=number)
"""
CONFTEST = """
import psycopg
import pytest

@pytest.fixture(scope="session")
def partbox_prepare():
    def prepare(dsn):
        with psycopg.connect(dsn) as conn:
            conn.execute("create schema shop")
            conn.execute("create table shop.customer (name text primary key, since serial)")
            conn.execute("insert into shop.customer values ('Eve')")
            conn.execute('''create table shop."order" (number int primary key, total int,
                                                       customer text references shop.customer)''')
            conn.execute("insert into shop.order values (1, 1, 'Eve')")
    return prepare
"""
TESTS = """
import pytest
import shop

@pytest.mark.parametrize("time", [1, 2, 3])
def test_an_order(time, partbox_kit, partbox_conn):
    assert partbox_conn.execute("select count(*), max(number) from shop.order").fetchone() == (1, 1)
    assert partbox_conn.execute("select nextval('shop.customer_since_seq')").fetchone() == (2,)
    shop.place(partbox_conn, 7, 42)
    event = partbox_kit.published("OrderPlaced", aggregate_id=7, conn=partbox_conn).one()
    assert event.payload == {"total": 42}
    assert partbox_kit.published() == []
    partbox_conn.commit()
    partbox_kit.drain().assert_done()

def test_what_is_not_committed_is_gone(partbox_kit, partbox_conn):
    shop.place(partbox_conn, 7, 42)

def test_a_new_order(partbox_kit, partbox_conn):
    assert partbox_kit.published(conn=partbox_conn) == []

def test_the_outbox_is_where_it_belongs_without_the_kit():
    assert shop.outbox.dsn == "postgresql:///production"
"""
FAILING = """
import shop

def test_publishing(partbox_kit):
    partbox_kit.publish("OrderPlaced", {"total": 1}, aggregate_id="8")
    assert partbox_kit.published("OrderPlaced", aggregate_id="7")

def test_delivering(partbox_kit):
    partbox_kit.publish("OrderPlaced", {"total": -1}, aggregate_id="8")
    partbox_kit.drain().assert_done()

def test_states(partbox_kit):
    partbox_kit.publish("OrderPlaced", {"total": -1}, aggregate_id="8")
    assert partbox_kit.drain().states == ["done"]
"""

WHERE = """
from pathlib import Path
from psycopg.conninfo import conninfo_to_dict
from partbox.testing import servers

def test_where_it_is(partbox_server):
    there = [Path(conninfo_to_dict(partbox_server.dsn)["host"]).parent, servers._find_originals_folder()]
    assert all(path.exists() for path in there)
    Path("where").write_text("\\n".join(map(str, there)))
"""
INI = "[pytest]\npythonpath = .\nfilterwarnings = error\n"
BESIDE_OTHERS = "asyncio_default_fixture_loop_scope = function\n"


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Files of a user, and an environment without what the project's own tests need."""
    for name in ("PARTBOX_TEST_BINARIES", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(shop=SHOP, conftest=CONFTEST)
    pytester.makeini(f"{INI}{BESIDE_OTHERS}partbox_outbox = shop:outbox\n")
    return pytester


def run(user: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return user.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


@pytest.fixture
def alone(user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs load the plugin, and none of the others that are installed, which take most of a short run."""
    user.makeini(f"{INI}partbox_outbox = shop:outbox\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p partbox")


def test_each_test_has_its_own_tables_and_outbox_and_the_application_publishes_there(user, server, request, alone):
    """A role is enough that may create databases and nothing else."""
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("create role tester login createdb")
        request.addfinalizer(
            lambda: psycopg.connect(server.dsn, autocommit=True).execute("drop role tester").connection.close()
        )
        user.makepyfile(TESTS)
        run(user, f"--partbox-dsn={make_conninfo(server.dsn, user='tester')}").assert_outcomes(passed=6)
        left = "select datname from pg_database where datname like 'partbox_template_%'"
        assert conn.execute(left).fetchall() == []


@pytest.mark.parametrize("processes", ["0", pytest.param("2", marks=pytest.mark.soak)])
def test_without_a_dsn_each_process_of_a_run_has_an_embedded_server_of_its_own(user, server, monkeypatch, processes):
    monkeypatch.delenv("PARTBOX_TEST_ORIGINALS")
    user.makepyfile(TESTS, test_where=WHERE)
    run(user, "-n", processes).assert_outcomes(passed=7)
    there = [Path(path) for path in (user.path / "where").read_text().split()]
    assert [path.exists() for path in there] == [False, False]


def test_a_failing_test_says_what_was_published_instead(user, server, alone):
    user.makepyfile(FAILING)
    result = run(user, f"--partbox-dsn={server.dsn}")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*<no event with event_type='OrderPlaced', aggregate_id='7'; published:*",
            "*AssertionError: not all is done:*",
            "*OrderPlaced of __GLOBAL__/8 (id 1) by shop.bill: retrying, due in 60 s, 1 attempt: ValueError: a *",
            "*'retrying'*!=*'done'*",
        ]
    )
    result.stdout.fnmatch_lines(["*ValueError: a negative total*"])  # with its traceback in the handler


def test_a_test_run_that_does_not_use_partbox_loads_nothing_of_it(user):
    user.makepyfile(
        """
        import sys

        def test_nothing(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("partbox")
            assert [name for name in sys.modules if name.split(".")[0] in ("partbox", "psycopg")] == []
        """
    )
    user.makeconftest("")
    run(user).assert_outcomes(passed=1)


def test_an_outbox_that_does_not_exist_is_a_usage_error(user, server, alone):
    user.makeini(f"{INI}partbox_outbox = shop:nothing\n")
    user.makepyfile("def test_it(partbox_kit): ...")
    result = run(user, f"--partbox-dsn={server.dsn}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*partbox_outbox = shop:nothing: there is no such object; write module:name*"])


CASES = """
import shop
from partbox.testing import PartboxAsyncTestCase, PartboxTestCase, delivered
from conftest import partbox_prepare

class Shop:
    outbox = shop.outbox

    @classmethod
    def prepare(cls, dsn):
        import psycopg

        with psycopg.connect(dsn) as conn:
            conn.execute("create table visit (number int)")

class OrderTest(Shop, PartboxTestCase):
    def test_once(self):
        self.assertEqual(self.kit.published(), [])
        self.kit.publish("OrderPlaced", {"total": 42})
        self.kit.drain().assert_done()

    test_twice = test_once

class AsyncOrderTest(Shop, PartboxAsyncTestCase):
    async def test_once(self):
        import psycopg

        async with await psycopg.AsyncConnection.connect(self.dsn) as conn:
            await conn.execute("insert into visit values (1)")
            await shop.outbox.publish_async(conn, "OrderPlaced", {"total": 42})
            self.assertEqual(len(await self.kit.published_async(conn=conn)), 1)
        (await self.kit.drain_async()).assert_done()

class Own(PartboxTestCase):
    def test_an_outbox_of_its_own(self):
        self.kit.outbox.on("Seen")(lambda event: None)
        self.kit.publish("Seen", 1)
        self.kit.drain().assert_done()

del PartboxTestCase, PartboxAsyncTestCase
"""


@pytest.mark.parametrize("runner", [pytest.param("unittest", marks=pytest.mark.thorough), "pytest"])
def test_test_cases_of_unittest_have_a_kit_too(user, server, monkeypatch, runner):
    monkeypatch.setenv("PARTBOX_TEST_DSN", server.dsn)
    user.makepyfile(test_cases=CASES)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", runner, "test_cases.py"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout if runner == "pytest" else "Ran 4 tests" in ended.stderr
    with psycopg.connect(server.dsn) as conn:
        assert conn.execute("select from pg_database where datname like 'partbox_template_%'").fetchall() == []
