"""A node whose worker process cannot read, though it lives: it is not ready, says so, and keeps its lease."""

from collections.abc import Iterator

import psycopg
import pytest
from hanging_proxy import Proxy, hanging_proxy
from waiting import eventually

from partbox import Event, Outbox
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.health.health import Health
from partbox.observe.health.vitals import MonitoredSupervisor
from partbox.observe.metrics.meter import Meters
from partbox.platform import boottime
from partbox.protocol.lease import Patience, should_kill
from partbox.supervisor.worker_handle import WorkerHandle
from partbox.worker.slot import POLL_TICK, READ_AT, RUNNING_SINCE, SAVE_TICK, SAVED_AT, Slot


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with hanging_proxy(dsn) as proxy:
        yield proxy


def test_a_node_whose_process_cannot_read_or_save_is_not_ready_until_it_can(dsn, proxy, conn):
    outbox = Outbox(proxy.dsn, lease=3, heartbeat=0.3)
    outbox.register(lambda event: None, "Counted")
    node = outbox.supervisor(processes=1, concurrency=1)
    glance = CachedOverview(Outbox(dsn).settings, lambda: dsn)
    health = Health(
        [
            MonitoredSupervisor(
                "", "one", "default", Meters(["h"]), DatabaseProbe(glance.read_overview), node.read_vitals, dict
            )
        ]
    )
    node.start()
    try:
        publish(conn, dsn, 1)
        eventually(lambda: done(conn) and health.check_readiness().http_status == 200)
        before = conn.execute("select instance_id from partbox.instance").fetchall()
        for name, what in (("partbox poller", "read"), ("partbox saver", "saved")):
            proxy.hang(name, later=True)
            publish(conn, dsn, 50)
            eventually(lambda what=what: f"has not {what} for" in " ".join(health.check_readiness().body["problems"]))
            assert health.check_liveness().http_status == 200, f"a restart would not help: {name}"
            proxy.go_on()
            eventually(lambda: done(conn) and health.check_readiness().http_status == 200)
            assert conn.execute("select instance_id from partbox.instance").fetchall() == before, name
    finally:
        node.stop()
        node.join()
        glance.close()


def publish(conn: psycopg.Connection, dsn: str, count: int) -> None:
    with conn.transaction():
        events = [Event("Counted", n, aggregate_type="Key", aggregate_id=str(n)) for n in range(count)]
        Outbox(dsn).publish_many(conn, events)


def done(conn: psycopg.Connection) -> bool:
    return conn.execute("select count(*) from partbox.record_status where status <> 'done'").fetchone() == (0,)


def child(**ticks: float) -> WorkerHandle:
    """Of these ticks, so many seconds ago."""
    made, slot = WorkerHandle.__new__(WorkerHandle), Slot.create_local()
    fields = {"poll": POLL_TICK, "save": SAVE_TICK, "read": READ_AT, "saved": SAVED_AT, "running": RUNNING_SINCE}
    for name, ago in ticks.items():
        slot[fields[name]] = boottime() - ago
    made._reset_signs(slot, 1)
    made._ready_at = boottime() - 60
    return made


def test_a_process_that_is_ready_before_its_first_look_has_not_been_silent_since_the_machine_started():
    made = child(poll=0)
    made._ready_at = 0.0
    signs = made.update_signs()
    assert (signs.silent_for, signs.half_silent_for) == pytest.approx((0, 0), abs=5)
    assert not should_kill(signs, Patience(lease=6, handler_timeout=300, drain_timeout=15))


@pytest.mark.parametrize(
    ("ticks", "silent", "half_silent"),
    [
        ({"poll": 0, "save": 0}, 0, 0),
        ({"poll": 50, "save": 0}, 0, 50),
        ({"poll": 0, "save": 50}, 0, 50),
        ({"poll": 50, "save": 40}, 40, 50),
    ],
)
def test_poller_and_saver_are_each_judged_by_their_own_tick(ticks, silent, half_silent):
    signs = child(**ticks).update_signs()
    assert signs.silent_for == pytest.approx(silent, abs=5)
    assert signs.half_silent_for == pytest.approx(half_silent, abs=5)


@pytest.mark.parametrize(
    ("ticks", "unread"),
    [
        ({"poll": 0, "save": 0, "read": 50, "saved": 0}, 50),  # it connects again and again
        ({"poll": 50, "save": 0, "read": 50, "saved": 0, "running": 40}, 50),  # what runs does not hold up the saver
        ({"poll": 50, "save": 50, "read": 50, "saved": 50, "running": 50}, 0),  # a handler holds the interpreter
    ],
)
def test_a_handler_is_blamed_for_missing_reads_only_if_it_holds_up_poller_and_saver(ticks, unread):
    made = child(**ticks)
    made.update_signs()
    assert made.read_vitals().unread_seconds == pytest.approx(unread, abs=5)
