"""Looking at a database that may not answer."""

import threading
import time

import psycopg
import pytest
from overviews import cluster, overview, watched
from prometheus_client import generate_latest
from waiting import eventually

from partbox.errors import SchemaError
from partbox.observe import collector
from partbox.observe.collector import build_registry
from partbox.observe.health.database_probe import DatabaseProbe
from partbox.text.dsn import list_database_names


@pytest.fixture
def gate():
    """Open at the end of the test: what waits for it does not outlive it."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_concurrent_requests_share_one_database_query(gate):
    looks = []

    def look():
        looks.append(1)
        gate.wait(120)
        return overview()

    probe = DatabaseProbe(look)
    asked = [probe.request_result() for _ in range(5)]
    gate.set()
    assert all(probe.wait_for_result(since, 30).overview == overview() for since in asked)
    assert looks == [1]


def test_a_request_never_gets_an_answer_from_before_it_was_made(gate):
    answers = iter([overview(cluster(completed=1)), overview(cluster(completed=2))])
    gate.set()
    probe = DatabaseProbe(lambda: gate.wait(120) and next(answers))
    first = probe.wait_for_result(probe.request_result(), 30)
    gate.clear()
    since = probe.request_result()
    assert probe.wait_for_result(since, 0.01) is None
    assert probe.latest_result == first
    gate.set()
    second = probe.wait_for_result(since, 30)
    assert [result.overview.clusters[0].completed for result in (first, second)] == [1, 2]
    assert probe.latest_result == second


def test_errors_are_shown_without_the_messages_of_the_driver_or_the_application(caplog):
    def unreachable():
        raise psycopg.OperationalError("connection to postgresql://ada:s3cret@db/shop\nfailed")

    def broken():
        raise SchemaError("no schema: run `partbox init`")

    def rotating():
        raise KeyError("vault")

    def refused():
        raise psycopg.errors.InsufficientPrivilege("permission denied for table payroll")

    results = [
        probe.wait_for_result(probe.request_result(), 30)
        for probe in map(DatabaseProbe, (unreachable, broken, rotating, refused))
    ]
    assert [result.error for result in results] == [
        "OperationalError",
        "no schema: run `partbox init`",
        "KeyError",
        "InsufficientPrivilege (SQLSTATE 42501)",
    ]
    assert [result.is_broken for result in results] == [False, True, False, False]
    assert "OperationalError: connection to postgresql://ada:***@db/shop failed" in caplog.text
    assert "KeyError: 'vault'" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_error_is_logged_when_it_begins_and_when_it_changes(caplog):
    errors = iter(["away", "away", "starting up", None, "starting up"])

    def look():
        if error := next(errors):
            raise psycopg.OperationalError(error)
        return overview()

    probe = DatabaseProbe(look)
    for _ in range(5):
        assert probe.wait_for_result(probe.request_result(), 30)
    assert [record.args[1] for record in caplog.records] == ["away", "starting up", "starting up"]


def test_a_request_does_not_fail_when_no_thread_can_start_and_the_next_one_works(monkeypatch):
    def none(thread):
        raise RuntimeError("can't start new thread")

    probe = DatabaseProbe(overview)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        assert probe.wait_for_result(probe.request_result(), 0.01) is None
    assert probe.wait_for_result(probe.request_result(), 30).overview == overview()


def test_a_new_query_starts_after_one_that_failed():
    answers = iter([psycopg.OperationalError("away"), overview()])

    def look():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    probe = DatabaseProbe(look)
    assert probe.wait_for_result(probe.request_result(), 30).overview is None
    assert probe.wait_for_result(probe.request_result(), 30).overview == overview()


def test_a_scrape_does_not_wait_for_a_database_that_does_not_answer(gate, monkeypatch):
    monkeypatch.setattr(collector, "PROBE_TIMEOUT", 0.05)
    node = watched(lambda: gate.wait(120) and overview())
    lines = generate_latest(build_registry("p", [node])).decode().splitlines()
    assert "p_database_up 0.0" in lines
    assert 'p_processes{subscription="default"} 0.0' in lines
    assert 'p_delivered_total{handler="confirm",subscription="default"} 0.0' in lines
    assert not [line for line in lines if line.startswith("p_records{")]
    gate.set()
    eventually(lambda: "p_database_up 1.0" in generate_latest(build_registry("p", [node])).decode())


def shown(node) -> list[str]:
    return generate_latest(build_registry("p", [node])).decode().splitlines()


def test_a_database_that_is_slow_keeps_for_a_minute_what_was_seen_last(gate, monkeypatch):
    gate.set()
    node = watched(lambda: gate.wait(120) and overview())
    assert "p_database_up 1.0" in shown(node)
    gate.clear()
    monkeypatch.setattr(collector, "PROBE_TIMEOUT", 0.05)
    lines = shown(node)
    assert "p_database_up 1.0" in lines
    assert 'p_partitions{subscription="default"} 256.0' in lines
    monkeypatch.setattr(collector, "MAX_STALE", 0.0)
    lines = shown(node)
    assert "p_database_up 0.0" in lines
    assert not [line for line in lines if line.startswith("p_partitions{")]


@pytest.mark.parametrize(
    ("error", "up"), [(psycopg.errors.QueryCanceled("timeout"), 1.0), (psycopg.OperationalError("away"), 0.0)]
)
def test_a_query_that_the_server_cancelled_shows_that_the_database_is_up(error, up, monkeypatch):
    answers = iter([overview()])

    def look():
        for answer in answers:
            return answer
        raise error

    node = watched(look)
    shown(node)
    lines = shown(node)
    assert f"p_database_up {up}" in lines
    assert ('p_partitions{subscription="default"} 256.0' in lines) is bool(up)
    monkeypatch.setattr(collector, "MAX_STALE", 0.0)
    lines = shown(node)
    assert f"p_database_up {up}" in lines
    assert not [line for line in lines if line.startswith("p_partitions{")]


def test_one_of_two_databases_that_is_away_takes_only_its_own_numbers():
    def away():
        raise psycopg.OperationalError("away")

    nodes = [watched(database="orders"), watched(away, database="billing")]
    text = generate_latest(build_registry("p", nodes)).decode()
    assert 'p_database_up{database="orders"} 1.0' in text
    assert 'p_database_up{database="billing"} 0.0' in text
    assert 'p_partitions{database="orders",subscription="default"} 256.0' in text
    assert 'p_processes{database="billing",subscription="default"} 0.0' in text


def test_a_failed_query_is_logged_with_the_name_of_its_database(caplog):
    def away():
        raise psycopg.OperationalError("away")

    probe = DatabaseProbe(away, "billing")
    probe.wait_for_result(probe.request_result(), 30)
    (line,) = [record for record in caplog.records if record.event == "partbox.look_failed"]
    assert line.database == "billing"


def test_a_wait_ends_when_its_time_is_over(gate):
    probe = DatabaseProbe(lambda: gate.wait(120) and overview())
    since = probe.request_result()
    assert probe.wait_for_result(since, 0.01) is None
    assert probe.wait_for_result(since, -1.0) is None
    assert probe.latest_result is None
    assert since <= time.monotonic()


@pytest.mark.parametrize(
    ("dsns", "names"),
    [
        (["postgresql://u:s3cret@a/orders", "host=b dbname=billing password=s3cret"], ["orders", "billing"]),
        (["postgresql://u:s3cret@a/shop", "postgresql://b:5433/shop"], ["a:5432/shop", "b:5433/shop"]),
        (["postgresql://a/shop", "postgresql://a/shop"], ["a:5432/shop", "a:5432/shop #2"]),
        (["user=ada", "nonsense"], ["ada", "default"]),
        (["service=one user=u", "service=two user=u"], ["one", "two"]),
        (["dbname=a\u202eb", f"dbname={'x' * 70}"], ["a\\u202eb", f"{'x' * 59}…"]),
    ],
    ids=["by name", "by place", "the same twice", "unnamed", "by service", "hostile"],
)
def test_databases_are_named_as_shortly_as_they_can_be_told_apart(dsns, names):
    assert list_database_names(dsns) == names
