"""A connection that hangs and does not break: it is cut a little after a lease, and all goes on over a new one."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from desk import Desk
from hanging_proxy import Proxy, hanging_proxy
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from stopped_backend import stop_at_rest

from partbox import Outbox
from partbox.supervisor.embedded import EmbeddedWorker

POLLER, SAVER, EFFECTS, MEMBERSHIP = "partbox poller", "partbox saver", "partbox effects", "partbox supervisor"
QUICK = {"lease": 2.0, "heartbeat": 0.3, "poll_idle": 0.05}


class Base(DeclarativeBase):
    pass


class Number(Base):
    __tablename__ = "effect"
    number: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with hanging_proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
def desk(dsn: str, proxy: Proxy) -> Iterator[Desk]:
    """Its workers reach the database through the proxy, it does not."""
    desk = Desk(dsn, **QUICK)
    desk.outbox = Outbox(proxy.dsn, **QUICK)
    yield desk
    desk.conn.close()


def publish(desk: Desk, begin: int, count: int = 40) -> list[int]:
    numbers = list(range(begin, begin + count))
    for number in numbers:
        desk.publish(f"k{number % 10}", number)
    return numbers


def all_numbers(desk: Desk) -> list[int]:
    return sorted(number for _, number, _ in desk.seen)


def instances(desk: Desk) -> list[Any]:
    return desk.conn.execute("select instance_id from partbox.instance").fetchall()


def backend(desk: Desk, name: str) -> int:
    row = desk.conn.execute(
        "select pid from pg_stat_activity where datname = current_database() and application_name = %s", [name]
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("name", [POLLER, SAVER, MEMBERSHIP])
def test_a_connection_that_hangs_costs_neither_events_nor_the_lease(desk, proxy, caplog, name):
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        published = publish(desk, 0)
        desk.eventually(desk.all_done)
        before = instances(desk)
        assert proxy.hang(name) >= 1
        published += publish(desk, 100)
        desk.eventually(lambda: len(all_numbers(desk)) == len(published) and desk.all_done())
        desk.eventually(lambda: "a connection hung" in caplog.text)
        assert instances(desk) == before
    assert all_numbers(desk) == published  # and none twice
    assert "under a new identity" not in caplog.text


@pytest.mark.parametrize("name", [POLLER, SAVER])
@pytest.mark.every_version("sessions that hang")
def test_a_backend_that_is_stopped_costs_no_events(own_server, caplog, name):
    desk = Desk(own_server.dsn, **QUICK)
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        published = publish(desk, 0)
        desk.eventually(desk.all_done)
        stopped = backend(desk, name)
        stop_at_rest(stopped)
        try:
            published += publish(desk, 100)
            desk.eventually(lambda: len(all_numbers(desk)) == len(published) and desk.all_done())
        finally:
            os.kill(stopped, signal.SIGCONT)
    assert all_numbers(desk) == published
    assert "a connection hung" in caplog.text
    desk.conn.close()


def test_a_graceful_stop_saves_over_another_connection_when_that_of_the_saver_hangs(desk, proxy):
    stop_beside_a_saver_that_hangs(desk, proxy)


def test_a_stop_shorter_than_a_deadline_saves_over_another_connection_too(desk, proxy):
    desk.outbox = Outbox(proxy.dsn, lease=20, drain_timeout=8)
    stop_beside_a_saver_that_hangs(desk, proxy)


def stop_beside_a_saver_that_hangs(desk: Desk, proxy: Proxy) -> None:
    desk.outbox.register(desk.note, "Counted")
    worker: EmbeddedWorker = desk.outbox.worker()
    worker.start()
    published = publish(desk, 0)
    desk.eventually(desk.all_done)
    assert proxy.hang(SAVER) == 1
    published += publish(desk, 100)
    desk.eventually(lambda: len(all_numbers(desk)) == len(published))
    worker.stop()
    with desk.outbox.worker():
        published += publish(desk, 200, 1)
        desk.eventually(desk.all_done)
    assert all_numbers(desk) == published


SLOW_ONCE = """
create table effect (number integer);
create sequence times;
create function slow_once() returns trigger language plpgsql as
    $$ begin if nextval('times') = 1 then perform pg_sleep(4); end if; return new; end $$;
create trigger slow_once before insert on effect for each row execute function slow_once()
"""
INSERT = "insert into effect values (%s)"


class Hang:
    """Has the connection of transactions hang once, in which a savepoint cannot be released then."""

    def __init__(self, desk: Desk, proxy: Proxy) -> None:
        self._desk, self._proxy, self._is_over = desk, proxy, False

    def passes(self, event: Any) -> int | None:
        """The number of the event; None if it hangs."""
        number = event.payload["number"]
        self._desk.note(event)
        if number != 2 or self._is_over:
            return int(number)
        self._is_over = True
        assert self._proxy.hang(EFFECTS) == 1
        return None

    def of_psycopg(self, event: Any, conn: Any) -> None:
        if (number := self.passes(event)) is not None:
            conn.execute(INSERT, [number])

    async def of_async_psycopg(self, event: Any, conn: Any) -> None:
        if (number := self.passes(event)) is not None:
            await conn.execute(INSERT, [number])

    def of_sqlalchemy(self, event: Any, session: Session) -> None:
        if (number := self.passes(event)) is not None:
            session.add(Number(number=number))  # which is sent when it returns

    async def of_async_sqlalchemy(self, event: Any, session: AsyncSession) -> None:
        self.of_sqlalchemy(event, session)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("handle", "transactional"),
    [
        (Hang.of_psycopg, True),
        (Hang.of_async_psycopg, True),
        (Hang.of_sqlalchemy, "sqlalchemy"),
        (Hang.of_async_sqlalchemy, "sqlalchemy"),
    ],
    ids=["psycopg", "async psycopg", "SQLAlchemy", "async SQLAlchemy"],
)
def test_effects_that_hang_are_cut_and_run_again_while_a_handlers_own_statement_may_take_its_time(
    desk, proxy, caplog, handle, transactional
):
    """Its own takes longer than ours may: a flush behind the handler, too."""
    desk.conn.execute(SLOW_ONCE)
    desk.outbox.register(handle.__get__(Hang(desk, proxy)), "Counted", transactional=transactional)
    with desk.outbox.worker():
        desk.publish("k", 1)
        desk.eventually(desk.all_done)
        assert "hangs" not in caplog.text
        desk.publish("k", 2, 3)
        desk.eventually(desk.all_done)
    assert desk.conn.execute("select number from effect order by number").fetchall() == [(1,), (2,), (3,)]
    assert desk.numbers().count(1) == 1
    assert "no answer within 3.0 s, so the connection was cut" in caplog.text


def test_a_worker_whose_every_connection_hangs_goes_on_when_the_network_does(desk, proxy, caplog):
    """Connecting ends too, whatever phase it hangs in, and is tried again."""
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        published = publish(desk, 0)
        desk.eventually(desk.all_done)
        assert proxy.hang(later=True) >= 3
        published += publish(desk, 100)
        desk.eventually(lambda: "connection timeout expired" in caplog.text)
        proxy.go_on()
        desk.eventually(lambda: set(all_numbers(desk)) == set(published) and desk.all_done())


def test_a_worker_whose_every_connection_hangs_stops_in_time(desk, proxy):
    desk.outbox = Outbox(proxy.dsn, drain_timeout=1, **QUICK)
    desk.outbox.register(desk.note, "Counted")
    worker = desk.outbox.worker()
    worker.start()
    publish(desk, 0)
    desk.eventually(desk.all_done)
    proxy.hang(later=True)
    stopping = threading.Thread(target=worker.stop, daemon=True)
    stopping.start()
    stopping.join(120)
    assert not stopping.is_alive()
