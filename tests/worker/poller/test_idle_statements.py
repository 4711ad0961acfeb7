"""An idle worker sends few statements and draws no transaction ids: tests that count both."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from desk import Desk

from partbox.db import blocking
from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import cursors, idle_check, proof, records
from partbox.db.delivery.server_incarnation import note_incarnation, read_incarnation
from partbox.protocol.horizon import Page
from partbox.protocol.intervals import TICK

pytestmark = pytest.mark.every_version("sequences, snapshots and the plans of functions")

LOOKS = 60
ME = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of times that each statement of the hot path was sent, by the name of its query."""
    found, number = Counter[str](), blocking._number_parameters

    def counted(name: str, *rest: object) -> object:
        found[name] += 1
        return number(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(blocking, "_number_parameters", counted)
    return found


@contextmanager
def idle_worker(desk: Desk, sent: Counter[str], look: str = "still") -> Iterator[None]:
    """A worker without a bell that has delivered an event, and now only looks."""
    desk.outbox.register(desk.note, "*")
    with desk.outbox.worker():
        desk.publish(None, 1)
        desk.eventually(lambda: desk.numbers(None) == [1])
        desk.eventually(lambda: sent[look] >= 5)
        sent.clear()
        desk.eventually(lambda: sent[look] >= LOOKS)
        yield


def test_an_idle_worker_without_a_bell_asks_for_the_last_id_and_ticks(
    desk_with: Callable[..., Desk], sent: Counter[str]
) -> None:
    desk = desk_with(bell="off")
    with idle_worker(desk, sent):
        looks = sum(sent[name] for name in ("still", "quick", "poll", "fence", "calm", "tick"))
        assert sent["still"] > 0.7 * looks, sent
        # Something else in the server may have drawn an id or ended a transaction meanwhile.
        assert sent["quick"] + sent["poll"] + sent["fence"] <= 2, sent
        assert sent["tick"] <= 3, sent
        # Ticks are a fraction of the looks, by the settings and not by the time that passes.
        assert sent["calm"] <= looks * (desk.outbox.settings.poll_idle / TICK + 0.15), sent
        desk.publish(None, 2)
        desk.eventually(lambda: desk.numbers(None) == [1, 2])


def test_a_transaction_that_has_begun_after_the_last_id_makes_no_poll_necessary_when_it_ends(
    desk_with: Callable[..., Desk], sent: Counter[str], dsn: str
) -> None:
    desk = desk_with(bell="off")
    with psycopg.connect(dsn) as before, psycopg.connect(dsn) as after:
        before.execute("select pg_current_xact_id()")
        with idle_worker(desk, sent, look="fence"):
            after.execute("select pg_current_xact_id()")
            # The worker polls when this one ends, and its page lists the other one.
            before.commit()
            for end in (lambda: None, after.commit):
                desk.eventually(lambda: sent["still"] >= 5)
                sent.clear()
                end()
                desk.eventually(lambda: sent["still"] >= LOOKS)
                assert sent["quick"] + sent["poll"] + sent["fence"] <= 2, sent


def test_beside_an_open_transaction_that_has_published_a_worker_looks_for_its_end_and_polls_then(
    desk_with: Callable[..., Desk], sent: Counter[str], dsn: str
) -> None:
    desk = desk_with(bell="off")
    with psycopg.connect(dsn) as other:
        desk.outbox.publish(other, "Counted", {"number": 7}, aggregate_type="Key")
        with idle_worker(desk, sent, look="fence"):
            assert sent["quick"] + sent["poll"] <= 2, sent
            other.commit()
            desk.eventually(lambda: desk.numbers(None) == [1, 7])


def test_no_statement_of_an_idle_worker_draws_a_transaction_id(dsn: str) -> None:
    with connect(dsn, lease=60) as conn, conn.transaction():
        use_raw_loaders(conn)
        note_incarnation(conn, read_incarnation(conn, "partbox"))
        proof.begin_baseline(conn, "partbox")
        tick = cursors.run_tick(conn, "partbox", "default", ME, [])  # type: ignore[arg-type]
        cursors.recheck_idle(conn, "partbox", "default", ME, 0, tick.idle_check)  # type: ignore[arg-type]
        idle_check.run_check(conn, "partbox", [])
        assert idle_check.is_drawn_unchanged(conn, "partbox", tick.idle_check.fence.drawn_id)
        records.read_new_records(conn, "partbox", Page("1:1:", 0), "1" * 256)
        assert conn.execute("select pg_current_xact_id_if_assigned()::text").fetchone() == (None,)


def test_a_look_for_the_last_id_sees_that_one_was_drawn(dsn: str, desk_with: Callable[..., Desk]) -> None:
    desk = desk_with()
    with connect(dsn, lease=60) as conn:
        assert idle_check.is_drawn_unchanged(conn, "partbox", 0), "none is drawn yet"
        desk.publish(None, 1)
        assert not idle_check.is_drawn_unchanged(conn, "partbox", 0)
        assert idle_check.is_drawn_unchanged(conn, "partbox", 1)
