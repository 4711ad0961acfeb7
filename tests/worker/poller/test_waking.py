"""The bell on a real server: who raises and who lowers the flag, who hears, and what is left where nobody can hear."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from contexts import context
from desk import Desk
from roles import cast_of
from waiting import eventually

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import bell
from partbox.protocol.bell import FLAG_TIME, NAP, RING_BACK, BellPoll, SleepState, build_channel_name
from partbox.protocol.hashing import partition_of
from partbox.worker.poller import listener
from partbox.worker.poller import pacing as pace
from partbox.worker.poller.listener import Listener
from partbox.worker.poller.pacing import Pacer

pytestmark = pytest.mark.every_version("a sequence that is not logged, NOTIFY and LISTEN")

Conn = psycopg.Connection[Any]
MINE, OTHER = 5, 6


class Bedroom:
    """A worker's pacer and listener, on a connection as the poller has; it owns the partition MINE."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        shared = context(dsn, **{"bell": "on"} | settings)
        self.settings, self.engine, self.wakeup = shared.settings, shared.engine, shared.wakeup
        self.engine.partitions = {MINE: None}  # type: ignore[dict-item] # nobody looks at it
        self.pacer = Pacer(shared)
        self.listener = self.pacer.listener
        self.conn = connect(dsn, lease=60, prepared=True)
        use_raw_loaders(self.conn)
        self.pacer.begin_session(self.conn)

    def look(self, drawn: int = 7, *, up: float = 0.0) -> float:
        """The pause after a look that brought nothing."""
        return self.pacer.choose_next_pause(self.conn, False, BellPoll(drawn, True, up))

    def is_hearing(self) -> None:
        """Looks until it can be woken."""

        def heard() -> bool:
            self.look()
            return self.listener.is_hearing

        eventually(heard)

    def sleeps(self) -> None:
        """Looks until it sleeps."""

        def asleep() -> bool:
            self.look(up=0.2)
            return self.pacer._sleep_control.state is SleepState.NAPPING

        eventually(asleep)
        self.wakeup.clear()

    def woken(self) -> None:
        assert self.wakeup.wait(120)
        self.wakeup.clear()

    def stop(self) -> None:
        self.pacer.stop()
        self.conn.close()


@contextmanager
def bedroom(dsn: str, **settings: Any) -> Iterator[Bedroom]:
    made = Bedroom(dsn, **settings)
    try:
        yield made
    finally:
        made.stop()


def flag(conn: Conn) -> int | None:
    """Milliseconds for which the flag stays up; None: it was never set since the server began."""
    row = conn.execute(
        "select pg_sequence_last_value('partbox.bell') - (extract(epoch from clock_timestamp()) * 1000)::bigint"
    ).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def say(conn: Conn, payload: str) -> None:
    conn.execute("select pg_notify(%s, %s)", [build_channel_name("partbox"), payload])


def test_an_idle_worker_is_woken_by_a_publisher(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    hear = Listener.handle_notification
    monkeypatch.setattr(
        Listener, "handle_notification", lambda self, payload: (heard.append(payload), hear(self, payload))
    )
    desk = desk_with(bell="on")
    desk.outbox.on("Counted")(desk.note)
    with desk.outbox.worker():
        for number in range(3):
            eventually(lambda: (flag(desk.conn) or 0) > 0)
            desk.publish(f"k{number}", number)
            eventually(lambda number=number: len(desk.seen) > number)
        eventually(lambda: {str(partition_of(f"k{number}")) for number in range(3)} & {*heard})
        eventually(lambda: (flag(desk.conn) or 0) > 0)


def test_every_event_is_delivered_though_every_ring_of_the_bell_is_lost(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = Listener.handle_notification
    monkeypatch.setattr(
        Listener,
        "handle_notification",
        lambda self, payload: None if payload.isdecimal() or payload == "*" else hear(self, payload),
    )
    desk = desk_with(bell="on")
    desk.outbox.on("Counted")(desk.note)
    with desk.outbox.worker():
        for number in range(3):
            eventually(lambda: (flag(desk.conn) or 0) > 0)
            desk.publish("k", number)
            eventually(lambda number=number: desk.numbers() == [*range(number + 1)])


def test_a_worker_raises_the_flag_for_a_nap_once_it_is_proved_that_it_hears(dsn: str, conn: Conn) -> None:
    with bedroom(dsn) as sleeper:
        assert flag(conn) is None
        sleeper.is_hearing()
        sleeper.sleeps()
        assert sleeper.look(up=0.2) <= NAP

        def up() -> bool:
            sleeper.look(up=0.2)
            return 0 < (flag(conn) or 0) <= 1000

        eventually(up)


def test_a_ring_wakes_a_worker_only_for_its_own_partitions(dsn: str, conn: Conn) -> None:
    with bedroom(dsn) as sleeper:
        sleeper.is_hearing()
        for payload in (str(MINE), "*", RING_BACK):
            sleeper.wakeup.clear()
            say(conn, payload)
            sleeper.woken()
        heard: list[str] = []
        hear = sleeper.listener.handle_notification
        sleeper.listener.handle_notification = lambda payload: (heard.append(payload), hear(payload))  # type: ignore[assignment, return-value]
        for payload in (str(OTHER), "what", "\u00b2", "-5"):
            say(conn, payload)

        def all_heard() -> bool:
            assert not sleeper.wakeup.wait(0.01)
            return len(heard) == 4

        eventually(all_heard)


def test_an_awake_worker_lowers_the_flag_that_busy_publishers_find_up_and_sleeping_workers_wake(
    dsn: str, conn: Conn
) -> None:
    with bedroom(dsn) as sleeper, bedroom(dsn) as awake:
        sleeper.is_hearing()
        awake.is_hearing()
        sleeper.sleeps()
        moves = iter(range(8, 1_000_000_000, 1_000))

        def lowered() -> bool:
            awake.look(next(moves), up=0.2)
            return (flag(conn) or 0) < 0

        eventually(lowered)
        sleeper.woken()
        sleeper.look()
        assert sleeper.pacer._sleep_control.state is not SleepState.NAPPING


def test_raising_the_flag_does_not_shorten_what_another_worker_has_raised(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raised(ahead: int) -> int:
        (value,) = conn.execute(
            "select setval('partbox.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + %s)", [ahead]
        ).fetchone() or (0,)
        return value  # type: ignore[no-any-return]

    def kept() -> bool:
        before, was_up = raised(1000), bell.raise_flag(sleeper.conn, "partbox", sequence)
        after = conn.execute("select pg_sequence_last_value('partbox.bell')").fetchone()
        assert was_up is False or after == (before,)
        return was_up

    with bedroom(dsn) as sleeper:
        sequence = sleeper.pacer._sequence
        assert sequence is not None
        with monkeypatch.context() as patched:
            patched.setattr("partbox.db.delivery.bell.FLAG_TIME", 0.001)
            eventually(kept)  # at once, unless the machine takes a second
        raised(3_600_000)
        assert bell.raise_flag(sleeper.conn, "partbox", sequence) is False, "a clock was set back"
        assert (flag(conn) or 0) <= FLAG_TIME * 1000
        eventually(lambda: bell.raise_flag(sleeper.conn, "partbox", sequence))


def test_a_lost_connection_of_the_listener_wakes_its_worker_and_is_replaced(
    dsn: str, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with bedroom(dsn) as sleeper:
        sleeper.is_hearing()
        sleeper.sleeps()
        conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name like '%listener'")
        sleeper.woken()
        eventually(lambda: "notifications cannot wake this worker" in caplog.text)
        assert not sleeper.listener.is_hearing, "the new one has proved nothing yet"
        sleeper.is_hearing()
        sleeper.sleeps()
        say(conn, str(MINE))
        sleeper.woken()
        assert caplog.text.count("notifications cannot wake this worker") == 1


def test_a_connection_of_the_listener_that_cannot_be_made_is_logged_once(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with bedroom(dsn, listen_dsn="postgresql://127.0.0.1:1/nowhere") as sleeper:
        assert sleeper.look() > 0
        eventually(lambda: "notifications cannot wake this worker" in caplog.text)
        for _ in range(50):
            sleeper.look()
        assert not sleeper.listener.is_hearing
        assert sleeper.pacer._sleep_control.state is SleepState.AWAKE
        assert caplog.text.count("notifications cannot wake this worker") == 1


def test_a_worker_that_listens_to_another_database_hears_nothing_and_does_not_sleep(
    dsn: str, fresh_dsn: str, conn: Conn
) -> None:
    with bedroom(dsn, listen_dsn=fresh_dsn) as sleeper:
        sleeper.look()
        assert sleeper.wakeup.wait(120), "it listens"
        for _ in range(50):
            sleeper.look()
        assert not sleeper.listener.is_hearing
        assert flag(conn) is None


@pytest.mark.parametrize(
    "off", [{"bell": "auto"}, {"bell": "off"}, {"pooler": True}], ids=["prepared transactions", "off", "pooler"]
)
def test_nobody_listens_or_raises_the_flag_where_the_bell_is_off(dsn: str, conn: Conn, off: dict[str, Any]) -> None:
    with bedroom(dsn, **off) as awake:
        pauses = [awake.look() for _ in range(5)]
        awake.pacer._last_new_at -= pace.BUSY_SECONDS
        pauses.extend(awake.look() for _ in range(20))
        assert pauses[-1] == awake.settings.poll_idle
        assert awake.listener._thread is None
        assert awake.conn.bell is None
    assert bell.find_bell_sequence(conn, "partbox") is None or flag(conn) is None


def test_the_bell_is_on_when_the_listener_goes_past_the_pooler(dsn: str) -> None:
    with bedroom(dsn, pooler=True, listen_dsn=dsn) as sleeper:
        sleeper.is_hearing()
        sleeper.sleeps()


def test_the_bell_is_off_without_its_sequence_or_the_right_to_set_it(dsn: str, conn: Conn) -> None:
    with cast_of(dsn) as cast:
        with bedroom(cast.of("worker")) as sleeper:
            sleeper.is_hearing()
            sleeper.sleeps()
        conn.execute(f"revoke update on sequence partbox.bell from {cast.worker}")
        with bedroom(cast.of("worker")) as awake:
            assert awake.conn.bell is None
    conn.execute("drop sequence if exists partbox.bell")
    with bedroom(dsn) as awake:
        assert awake.conn.bell is None


def test_a_right_that_is_taken_away_meanwhile_turns_the_bell_off_with_one_log_line(
    dsn: str, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    with cast_of(dsn) as cast, bedroom(cast.of("worker")) as sleeper:
        sleeper.is_hearing()
        conn.execute(f"revoke all on sequence partbox.bell from {cast.worker}")

        def off() -> bool:
            sleeper.look()
            return sleeper.conn.bell is None

        eventually(off)
        sleeper.look()
        assert caplog.text.count("wake-up notifications are off") == 1


def test_a_worker_whose_flag_vanishes_reads_on(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(bell="on")
    desk.outbox.on("Counted")(desk.note)
    with desk.outbox.worker():
        eventually(lambda: (flag(desk.conn) or 0) > 0)
        desk.conn.execute("drop sequence partbox.bell")
        desk.publish("k", 1)
        eventually(lambda: desk.numbers() == [1])


def test_a_stop_does_not_wait_for_a_connection_that_is_being_made(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> None:
        asked.set()
        answer.wait(120)
        raise OSError("nobody answers")

    monkeypatch.setattr(listener, "JOIN_TIMEOUT", 0.01)
    monkeypatch.setattr(listener, "connect", slow)
    with bedroom(dsn) as sleeper:
        sleeper.look()
        assert asked.wait(120)
    thread = sleeper.listener._thread
    assert thread is not None
    assert thread.is_alive()
    answer.set()
    thread.join(120)
    assert not thread.is_alive()
    sleeper.listener.stop()
