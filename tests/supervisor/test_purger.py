"""The thread that purges every `purge_interval`, and the processes it runs in."""

import logging
import threading

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import FULL_DISK
from partbox.segments import SegmentReport
from partbox.settings import Settings
from partbox.supervisor import purging

SOON = {"purge_interval": 0.05, "lease": 2, "heartbeat": 0.3}
OLD = """
insert into partbox.record (partition, event_id, event_type, payload, created_at)
select g % 256, gen_random_uuid(), 'Placed', '{}', now() - interval '8 days' from generate_series(1, 600) g
"""


@pytest.fixture
def handled(conn):
    """600 old records that the only subscription is through with."""
    conn.execute(OLD)
    conn.execute("update partbox.partition set last_id = 600, floor_id = 600, snapshot = pg_current_snapshot()")


def left(conn) -> int:
    return conn.execute("select count(*) from partbox.record").fetchone()[0]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "partbox-purge"]


def test_a_purger_purges_repeatedly_and_logs_removed_records_once(dsn, conn, handled, caplog):
    caplog.set_level(logging.INFO, "partbox.purge")
    with Outbox(dsn, **SOON).purger():
        eventually(lambda: caplog.messages)  # the key is not for the first purge
        conn.execute("insert into partbox.idempotency select 'k', gen_random_uuid(), now() - interval '8 days'")
        # not that the key is gone: a purge that is ended behind it says that not all of what is due went
        eventually(lambda: len(caplog.messages) > 1)
    assert threads() == []
    said = [(record.levelname, record.message) for record in caplog.records]
    assert said == [("INFO", "purged 600 records"), ("INFO", "purged 1 idempotency key")]


def test_a_purger_of_an_outbox_without_subscriptions_purges_by_age(dsn, conn):
    conn.execute(OLD)
    conn.execute("delete from partbox.partition; delete from partbox.subscription")
    with Outbox(dsn, **SOON).purger():
        eventually(lambda: left(conn) == 0)


def test_a_purger_does_not_purge_at_its_start(dsn, conn, handled):
    with Outbox(dsn, purge_interval="1h").purger():
        assert threads() == ["partbox-purge"]
        assert left(conn) == 600
    assert left(conn) == 600


def test_a_purge_that_fails_is_logged_with_the_consequence_and_tried_again(dsn, conn, handled, caplog):
    answers = iter(["host=127.0.0.1 port=1", LookupError("no password today")])

    def rotating() -> str:
        answer = next(answers, dsn)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Outbox(rotating, **SOON).purger():
        eventually(lambda: left(conn) == 0)
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert all("purge failed, expired data stays until the next attempt in 50ms: " in error for error in errors)
    assert "connection" in errors[0]
    assert "LookupError: no password today" in errors[1]
    assert len(errors) == 2


def test_a_purge_that_finds_no_room_on_the_servers_disk_names_the_remedy(dsn, conn, handled, caplog):
    conn.execute(
        "create function full_disk() returns trigger language plpgsql as"
        " $$ begin raise exception using errcode = 'disk_full', message = 'no space left'; end $$;"
        "create trigger full_disk before delete on partbox.record for each statement execute function full_disk()"
    )
    with Outbox(dsn, **SOON).purger():
        eventually(lambda: f"{FULL_DISK}no space left" in caplog.text)
    assert left(conn) == 600


def test_a_schema_that_is_missing_is_logged_and_waited_for(empty_dsn, caplog):
    with Outbox(empty_dsn, **SOON).purger():
        eventually(lambda: "run `partbox init`" in caplog.text)
        assert threads() == ["partbox-purge"]


def test_a_purger_stops_between_two_steps(dsn, conn, handled):
    with Outbox(dsn, purge_batch=1, **SOON).purger():
        eventually(lambda: left(conn) < 600)
    rest = left(conn)
    assert 0 < rest < 600
    assert threads() == []


def test_a_purger_starts_once_and_stops_for_good(dsn):
    purger = Outbox(dsn).purger()
    purger.start()
    purger.start()
    assert threads() == ["partbox-purge"]
    purger.stop()
    purger.stop()
    assert threads() == []
    with pytest.raises(PartboxError, match=r"was stopped: make a new one by outbox.purger\(\)"):
        purger.start()
    unborn = Outbox(dsn).purger()
    unborn.stop()
    with pytest.raises(PartboxError, match="was stopped"):
        unborn.start()


def idle(dsn: str, **settings: object) -> Outbox:
    """An outbox with a handler that nobody needs: a worker without any does not start."""
    outbox = Outbox(dsn, **SOON, **settings)
    outbox.register(print, "Unpublished")
    return outbox


def test_an_embedded_worker_purges(dsn, conn, handled):
    with idle(dsn).worker():
        eventually(lambda: left(conn) == 0)
    assert threads() == []


def test_a_node_of_worker_processes_purges(dsn, conn, handled):
    supervisor = idle(dsn).supervisor(processes=1)
    supervisor.start()
    try:
        eventually(lambda: left(conn) == 0)
    finally:
        supervisor.stop()
        supervisor.join(120)
    assert not supervisor.running
    assert threads() == []


def test_a_disabled_worker_purges_nothing(dsn, conn, handled):
    outbox = idle(dsn, enabled=False)
    with outbox.worker():
        assert threads() == []
    supervisor = outbox.supervisor(processes=1)
    supervisor.start()
    try:
        assert threads() == []
    finally:
        supervisor.kill()
        supervisor.join(120)
    assert left(conn) == 600


@pytest.mark.parametrize("total", [450, pytest.param(3_000, marks=pytest.mark.soak)])
def test_only_handled_records_are_purged_while_publishers_and_a_worker_run(dsn, conn, total):
    """Everything expires at once here: what is purged too early is never handled."""
    outbox = Outbox(dsn, retain_done=0, purge_batch=50, **SOON)
    handled: list[int] = []

    @outbox.on("Counted", aggregate_type="Account")
    def count(event):
        handled.append(event.payload)

    with outbox.worker(), psycopg.connect(dsn, autocommit=True) as app, psycopg.connect(dsn) as late:
        for number in range(0, total, 3):
            with app.transaction():
                outbox.publish(app, "Counted", number, aggregate_type="Account", aggregate_id=f"{number % 50}")
                outbox.publish(app, "Counted", number + 1, aggregate_type="Account", aggregate_id=f"{number % 70}")
            outbox.publish(late, "Counted", number + 2, aggregate_type="Account", aggregate_id=f"{number % 90}")
            if number % 99 == 0:
                late.commit()  # its records come late: newer ones are long read
        late.commit()
        eventually(lambda: len(handled) >= total)
        eventually(lambda: outbox.purge().complete and left(conn) < total)
    assert sorted(handled) == [*range(total)]


def test_each_of_many_nodes_checks_the_segments_only_when_it_is_its_turn(dsn, conn, monkeypatch):
    drawn, looked = [], threading.Event()
    draws = iter([0.9, 0.6, 0.4])  # 20 nodes: each takes half of the turns

    def draw() -> float:
        drawn.append(next(draws, 0.9))
        return drawn[-1]

    monkeypatch.setattr(purging, "SEGMENT_INTERVAL", 0.01)
    monkeypatch.setattr(purging, "random", draw)
    monkeypatch.setattr(
        purging, "maintain_segments", lambda *_: looked.set() or drawn.append("looks") or SegmentReport()
    )
    purger = purging.Purging(Settings(), lambda: dsn, nodes=lambda: 20)
    with purger:
        assert looked.wait(120)
    assert drawn[:4] == [0.9, 0.6, 0.4, "looks"]


def test_nodes_take_turns_according_to_their_number_at_the_last_check(dsn, conn):
    with idle(dsn).worker() as worker:
        worker._membership._peers.node_count = 200
        assert worker._purging._count_nodes() == 200
