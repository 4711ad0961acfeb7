"""Connections that hang one by one, backends that are stopped, large payloads, and ids that run ahead."""

import select
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psutil
import psycopg
import pytest
from forked_commands import forks
from psycopg.conninfo import make_conninfo
from test_chaos_command import chaos, ended, make_open_folder
from waiting import eventually

from partbox.outbox import Outbox
from partbox.protocol.bell import build_channel_name
from partbox_lab.chaos import fault_injector, statements
from partbox_lab.chaos.fault_injector import FaultInjector
from partbox_lab.chaos.faults import FAULTS, LEASE, chosen, possible
from partbox_lab.chaos.ledger import Ledger
from partbox_lab.chaos.network import HOST
from partbox_lab.chaos.publishers import HUGE, LARGE, LEAP, Large, Leaping, publishers
from partbox_lab.chaos.schedule import ScheduledFault, schedule

__all__ = ["chaos", "forks", "make_open_folder"]

BELLS = ("bell-deaf", "bell-storm", "bell-stuck")
ATTACKS = ("conn-hang", "backend-stop", "large-payloads", "id-leap")
NEW = (*ATTACKS, *BELLS)


def step(fault: str, how: float = 0.0, lasts: float = 60.0) -> ScheduledFault:
    return ScheduledFault(1.0, fault, lasts, 0.0, how)


@pytest.fixture
def place(dsn, tmp_path):
    def connect(role):
        return psycopg.connect(make_conninfo(dsn, application_name=f"chaos {role}"), autocommit=True)

    return SimpleNamespace(
        dsn=dsn, schema="partbox", folder=tmp_path, server=None, connect=connect, named=lambda role: f"chaos {role}"
    )


@pytest.fixture
def act(place):
    """Makes an injector on this place; whatever it stopped goes on afterwards."""
    made = []

    def make(fleet=None, publishers=()):
        fleet = fleet or SimpleNamespace(hosts=[SimpleNamespace(kept=True)], up=list, network=None)
        made.append(FaultInjector(place, fleet, SimpleNamespace(), lambda text: None, publishers))
        return made[-1]

    yield make
    for injector in made:
        injector.finish()


@pytest.fixture
def publisher(place, conn):
    """Starts a publisher of a kind, which ends with the test."""
    statements.make_accounts(conn, "partbox")
    ledger, started = Ledger(Outbox(place.dsn), 40), []
    ledger.open(conn)

    def start(kind):
        started.append(kind(place, ledger, "1"))
        started[-1].pause = (0.0, 0.01)
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stopping.set()
        if isinstance(each, Leaping):
            each.let_go.set()
        each.join()
        assert each.error is None


def test_the_attacks_are_among_the_faults_of_a_run_by_default():
    assert set(NEW) <= set(chosen("all"))
    assert set(NEW) <= set(fault_injector._ACTS)
    assert {one.fault for one in schedule(7, 60, NEW)} == set(NEW)
    assert all(FAULTS[name].lasts[0] > LEASE for name in ("conn-hang", "backend-stop"))
    lacking = {"--embedded": "not ours", "proxy": "closed"}
    assert possible(NEW, lacking) == (
        ("large-payloads", "id-leap", *BELLS),
        {"conn-hang": "closed", "backend-stop": "not ours"},
    )


def test_the_manual_lists_every_fault_and_nothing_else():
    manual = (Path(__file__).parents[3] / "docs" / "chaos.md").read_text()
    assert [name for name in FAULTS if f"`{name}`" not in manual] == []


@pytest.mark.parametrize(("how", "for_good"), [(0.0, True), (0.001, False)], ids=["for good", "for a while"])
def test_a_hanging_connection_leaves_the_others_working(dsn, network, act, how, for_good):
    wire = network.wire()
    target = make_conninfo(dsn, host=HOST, hostaddr=HOST, port=str(wire.port))
    host = SimpleNamespace(wire=wire, kept=True, node=SimpleNamespace(name="n", workers=list, family=list))
    injector = act(SimpleNamespace(hosts=[host], up=lambda: [host], network=network))
    one = psycopg.connect(target, autocommit=True)
    with closing(one), psycopg.connect(target, autocommit=True) as other:
        injector.do(step("conn-hang", how))
        one.pgconn.send_query(b"select 1")
        assert other.execute("select 2").fetchone() == (2,)
        assert select.select([one.fileno()], [], [], 0.3) == ([], [], []), "nothing comes"
        with psycopg.connect(target, autocommit=True) as new:
            assert new.execute("select 3").fetchone() == (3,)
        injector.finish()
        assert bool(select.select([one.fileno()], [], [], 0.3 if for_good else 20)[0]) is not for_good
    assert injector.done == {"conn-hang": 1}
    assert injector.disturbances == [], "it excuses nothing"


def test_a_stopped_backend_of_a_node_resumes_by_itself_or_at_the_end_of_the_run(place, act):
    with place.connect("node") as node, place.connect("publisher") as bystander:
        pid = node.info.backend_pid
        injector = act()
        injector.do(step("backend-stop", lasts=60.0))
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        assert psutil.Process(bystander.info.backend_pid).status() != psutil.STATUS_STOPPED
        injector.do(step("backend-stop"))
        assert injector.missed == {"backend-stop": 1}, "there is no other"
        injector.finish()
        assert node.execute("select 1").fetchone() == (1,)
        injector.do(step("backend-stop", lasts=0.1))
        assert node.execute("select 1").fetchone() == (1,)
        assert injector.disturbances == [], "it excuses nothing"


def test_large_payloads_are_published_on_request_and_some_of_them_by_sql(publisher, act, conn, monkeypatch):
    monkeypatch.setattr("partbox_lab.chaos.publishers.HUGE", (0.3, HUGE[1]))
    large = publisher(Large)
    sizes = "select count(*), max(length(payload::text)), min(length(payload::text)) from partbox.record"
    assert conn.execute(sizes).fetchone() == (0, None, None)
    act(publishers=[large]).do(step("large-payloads", lasts=30.0))
    eventually(lambda: (conn.execute(sizes).fetchone()[1] or 0) > HUGE[1])
    large.stopping.set()
    large.join()
    assert conn.execute(sizes).fetchone()[2] >= LARGE[0]
    truth = large.ledger.truth(conn)
    assert {one.event for one in truth} == {one.event for one in large.ledger._committed.values()}


def test_record_ids_leap_a_million_ahead_of_a_transaction_that_stays_open(publisher, act, conn, monkeypatch):
    monkeypatch.setattr("partbox_lab.chaos.publishers.DOOMED", 0.0)
    leaping = publisher(Leaping)
    injector = act(publishers=[leaping])
    value = "select coalesce(pg_sequence_last_value('partbox.record_id_seq'), 0)"
    injector.do(step("id-leap", lasts=0.0))
    eventually(lambda: conn.execute(value).fetchone()[0] > LEAP)
    injector.do(step("id-leap", lasts=0.0))
    eventually(lambda: conn.execute(value).fetchone()[0] > 2 * LEAP)
    assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)
    leaping.let_go.set()
    eventually(lambda: leaping.ledger.count)
    ids = [id for (id,) in conn.execute("select id from partbox.record order by id")]
    assert ids[-1] - ids[0] > LEAP


def test_every_kind_of_publisher_takes_part(place):
    kinds = {type(each) for each in publishers(place, SimpleNamespace(), 1, True)}
    assert {Large, Leaping} <= kinds


@pytest.mark.parametrize(
    ("faults", "seed"),
    [pytest.param(ATTACKS, "17364", id="attacks"), pytest.param(BELLS, "7", id="the bell", marks=pytest.mark.soak)],
)
def test_a_short_run_of_these_attacks_alone_keeps_every_promise(chaos, faults, seed):
    run = chaos(
        "--embedded",
        "--seconds",
        "6",
        "--seed",
        seed,
        "--nodes",
        "1",
        "--processes",
        "1",
        "--faults",
        ",".join(faults),
        "--json",
    )
    report = ended(run)
    assert report["published"] > 100
    assert set(report["faults"]) == set(faults)


@pytest.mark.parametrize(
    ("fault", "shows"),
    [
        ("bell-deaf", "select pg_sequence_last_value('partbox.bell') = 1"),
        ("bell-stuck", "select pg_sequence_last_value('partbox.bell') > extract(epoch from clock_timestamp()) * 1000"),
    ],
)
def test_the_bell_flag_is_tampered_with_until_the_end_of_the_run(conn, act, fault, shows):
    injector = act()
    injector.do(step(fault))
    eventually(lambda: conn.execute(shows).fetchone() == (True,))
    conn.execute("select setval('partbox.bell', 7)")
    eventually(lambda: conn.execute(shows).fetchone() == (True,))
    injector.finish()
    conn.execute("select setval('partbox.bell', 7)")
    assert conn.execute("select pg_sequence_last_value('partbox.bell')").fetchone() == (7,)
    assert injector.disturbances == [], "it excuses nothing"


def test_a_bell_storm_rings_for_all_workers_without_end(dsn, conn, act):
    injector = act()
    conn.execute(f'listen "{build_channel_name("partbox")}"')
    injector.do(step("bell-storm"))
    heard = [each.payload for each in conn.notifies(timeout=30, stop_after=5)]
    injector.finish()
    assert heard[:5] == ["*"] * 5
