"""One reader for all viewers: answers are shared while they are young, and a lost connection is remade."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from observing import publish
from waiting import eventually

from partbox.db.inspect import cached_overview, stats
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.errors import PartboxError, SchemaError
from partbox.settings import load


class Clock:
    """Monotonic seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def overview_cache(dsn, clock) -> Iterator[CachedOverview]:
    made = CachedOverview(load(), lambda: dsn, clock=clock)
    yield made
    made.close()


def sessions(conn) -> list[int]:
    found = (
        "select pid from pg_stat_activity where datname = current_database() and application_name = 'partbox glance'"
    )
    return [pid for (pid,) in conn.execute(found)]


def test_an_overview_is_served_from_the_cache_for_a_second(conn, overview_cache, clock):
    first = overview_cache.read_overview()
    publish(conn, 3)
    clock.now += 0.9
    assert overview_cache.read_overview() is first
    clock.now += 0.2
    assert overview_cache.read_overview().clusters[0].pending == 1


def test_an_overview_that_took_long_is_cached_for_longer(conn, overview_cache, clock, monkeypatch):
    look = stats.read_overview

    def slow(*given, **named):
        clock.now += 2
        return look(*given, **named)

    monkeypatch.setattr(stats, "read_overview", slow)
    first = overview_cache.read_overview()
    clock.now += 7.9
    assert overview_cache.read_overview() is first
    clock.now += 0.2
    assert overview_cache.read_overview() is not first


def test_concurrent_callers_share_one_overview_read_over_one_connection(conn, overview_cache):
    start = threading.Barrier(8, timeout=30)

    def ask():
        start.wait()
        return overview_cache.read_overview()

    with ThreadPoolExecutor(8) as pool:
        answers = [each.result() for each in [pool.submit(ask) for _ in range(8)]]
    assert len(set(map(id, answers))) == 1
    assert len(sessions(conn)) == 1


def test_a_lost_connection_is_remade_without_anybody_noticing(conn, overview_cache, clock):
    overview_cache.read_overview()
    (lost,) = sessions(conn)
    conn.execute("select pg_terminate_backend(%s)", [lost])
    eventually(lambda: not sessions(conn))
    clock.now += 2
    publish(conn, 3)
    assert overview_cache.read_overview().clusters[0].pending == 1
    assert sessions(conn) != [lost]


def test_an_error_of_an_unreachable_database_is_cached_for_a_second_and_then_it_is_tried_again(dsn, clock):
    asked = []

    def away() -> str:
        asked.append(clock.now)
        return dsn if len(asked) > 1 else "host=127.0.0.1 port=1 connect_timeout=1"

    overview_cache = CachedOverview(load(), away, clock=clock)
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            overview_cache.read_overview()
    assert len(asked) == 1
    clock.now += 1.1
    assert overview_cache.read_overview().clusters
    overview_cache.close()


def test_a_schema_that_is_not_there_is_refused_and_leaves_no_connection(conn, empty_dsn, clock):
    overview_cache = CachedOverview(load(), lambda: empty_dsn, clock=clock)
    with pytest.raises(SchemaError, match="partbox init"):
        overview_cache.read_overview()
    with psycopg.connect(empty_dsn, autocommit=True) as there:  # what a transaction has seen of sessions stays so
        eventually(lambda: not sessions(there))
    overview_cache.close()


def test_a_closed_overview_cache_has_no_connection_and_makes_none(conn, overview_cache):
    overview_cache.read_overview()
    overview_cache.close()
    overview_cache.close()
    eventually(lambda: not sessions(conn))
    with pytest.raises(PartboxError, match="is closed"):
        overview_cache.read_overview()


def test_an_overview_cache_that_was_never_used_can_be_closed(overview_cache):
    overview_cache.close()


def test_other_queries_can_run_over_the_connection_of_the_overview_cache(conn, overview_cache):
    overview_cache.read_overview()
    assert overview_cache.run_read(lambda own: own.info.backend_pid) == sessions(conn)[0]
    with pytest.raises(psycopg.errors.DivisionByZero):
        overview_cache.run_read(lambda own: own.execute("select 1 / 0"))
    assert overview_cache.run_read(lambda own: own.info.backend_pid) == sessions(conn)[0]


def test_closing_does_not_wait_for_a_query_that_does_not_end(conn, overview_cache, monkeypatch):
    monkeypatch.setattr(cached_overview, "CLOSE_TIMEOUT", 0.05)
    begun, gate = threading.Event(), threading.Event()

    def stuck(own):
        begun.set()
        return gate.wait(120) and own.info.backend_pid

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(overview_cache.run_read, stuck)
        assert begun.wait(120)
        overview_cache.close()
        assert not looking.done()
        gate.set()
        assert looking.result(120)
    eventually(lambda: not sessions(conn))
    with pytest.raises(PartboxError, match="is closed"):
        overview_cache.read_overview()


def test_closing_does_not_wait_for_an_overview_either(conn, overview_cache, monkeypatch):
    monkeypatch.setattr(cached_overview, "CLOSE_TIMEOUT", 0.05)
    begun, gate = threading.Event(), threading.Event()
    look = stats.read_overview

    def stuck(*given, **named):
        begun.set()
        gate.wait(120)
        return look(*given, **named)

    monkeypatch.setattr(stats, "read_overview", stuck)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(overview_cache.read_overview)
        assert begun.wait(120)
        overview_cache.close()
        gate.set()
        assert looking.result(120).clusters
    eventually(lambda: not sessions(conn))


def test_a_query_through_a_pooler_is_cut_off_by_the_server_too(conn, dsn):
    """Where the session says nothing of a time limit, the transaction does."""
    overview_cache = CachedOverview(load(pooler=True), lambda: dsn, patience=0.2)
    assert overview_cache.run_read(lambda own: own.execute("show statement_timeout").fetchone()) == ("0",)
    conn.execute("begin; lock table partbox.partition")
    with pytest.raises(psycopg.errors.QueryCanceled):
        overview_cache.read_overview()
    conn.execute("rollback")
    overview_cache.close()
