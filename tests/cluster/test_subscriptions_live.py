"""Subscriptions while real worker processes deliver: apart from each other, paused, set back, dropped."""

import logging
import os
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from copying import Consumer, consuming
from ledger import Ledger, publishing
from node import PATIENCE
from waiting import eventually

from partbox import Outbox
from partbox.errors import PartboxError
from partbox.operations.subscriptions import Subscriptions


@pytest.fixture
def ledger(dsn) -> Ledger:
    return Ledger(dsn, aggregates=60)


@pytest.fixture
def commands(dsn) -> Subscriptions:
    return Outbox(dsn).subscriptions


@pytest.fixture
def consumer(dsn, tmp_path) -> Iterator[Callable[[str], Consumer]]:
    """Makes a consumer of a subscription that exists, without processes yet."""
    with consuming(tmp_path) as new:
        yield lambda name: new(name, dsn)


def consumed(conn, subscription: str) -> bool:
    """True if each of its cursors has passed every record, with nothing parked."""
    query = "select count(*) from partbox.record_status where subscription = %s and status <> 'done'"
    return conn.execute(query, [subscription]).fetchone() == (0,)


def owned(conn, subscription: str) -> set[object]:
    rows = conn.execute("select owner from partbox.partition where subscription = %s", [subscription])
    return {owner for (owner,) in rows}


def working(conn, subscription: str, processes: int) -> None:
    """Wait until so many processes own all of it."""
    eventually(lambda: len(owned(conn, subscription) - {None}) == processes, PATIENCE, 0.05)
    eventually(lambda: None not in owned(conn, subscription), PATIENCE, 0.05)


def delivered_at_least(consumer: Consumer, count: int) -> None:
    eventually(lambda: len(consumer.journal.ended()) >= count, interval=0.05)


def test_two_subscriptions_each_get_every_event_independently(conn, ledger, commands, consumer):
    """One of them begins amid the traffic, and a process of the other is killed."""
    default, audit = consumer("default"), consumer("audit")
    node = default.start(processes=2)
    working(conn, "default", 2)
    with publishing(ledger, threads=2):
        delivered_at_least(default, 30)
        commands.create("audit")
        other = audit.start()
        delivered_at_least(audit, 50)
        killed = conn.execute("select pid from partbox.instance where subscription = 'default' limit 1").fetchone()
        os.kill(killed[0], signal.SIGKILL)
        delivered_at_least(audit, len(audit.journal.ended()) + 50)
        delivered_at_least(default, len(default.journal.ended()) + 50)
    for each in (default, audit):
        eventually(lambda name=each.name: consumed(conn, name), interval=0.05)
    assert default.verdict(ledger.published()).wrong() == {}
    verdict = audit.verdict(ledger.published())
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    assert (node.stop(), other.stop()) == (0, 0)
    assert owned(conn, "default") == owned(conn, "audit") == {None}


PAUSES = 2
PAUSED = "subscription 'audit' is paused: nothing is delivered until"


def test_a_pause_stops_delivery_and_a_resume_goes_on_without_loss_or_repeat(conn, ledger, commands, consumer):
    commands.create("audit")
    default, audit = consumer("default"), consumer("audit")
    default.start()
    node = audit.start()
    working(conn, "default", 1)
    working(conn, "audit", 1)
    for pauses in range(1, PAUSES + 1):
        with publishing(ledger, threads=1):
            delivered_at_least(audit, len(audit.journal.ended()) + 40)
            assert commands.pause("audit")
            eventually(lambda: owned(conn, "audit") == {None}, PATIENCE, 0.02)
            eventually(lambda so_far=pauses: node.log.count(PAUSED) == so_far)  # a short one its supervisor may miss
            stood = len(audit.journal.started())
            delivered_at_least(default, len(default.journal.ended()) + 40)
        assert len(audit.journal.started()) == stood
        assert commands.resume("audit")
        eventually(lambda: consumed(conn, "audit"), interval=0.05)
    verdict = audit.verdict(ledger.published())
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    eventually(lambda: node.log.count("subscription 'audit' is delivered again") == PAUSES)


def test_workers_that_start_in_a_paused_subscription_own_nothing_until_it_is_resumed(conn, ledger, commands, consumer):
    commands.pause("default")
    default = consumer("default")
    ledger.publish_now(ledger.names)
    node = default.start(processes=2)
    eventually(lambda: "subscription 'default' is paused" in node.log, PATIENCE)
    assert owned(conn, "default") == {None}
    assert default.journal.started() == set()
    commands.resume("default")
    delivered_at_least(default, len(ledger.names))


@pytest.mark.thorough
def test_replays_under_traffic_redeliver_in_order_from_their_start_and_nothing_below(conn, ledger, commands, consumer):
    audit = consumer("audit")
    commands.create("audit")
    audit.start(processes=2)
    working(conn, "audit", 2)
    lowest = None
    with publishing(ledger, threads=2):
        for round in range(4):
            delivered_at_least(audit, len(audit.journal.ended()) + 75)
            (newest,) = conn.execute("select max(id) from partbox.record").fetchone()
            at = newest - 60
            lowest = min(at, lowest or at)
            if round % 2:
                since = conn.execute("select min(created_at) from partbox.record where id >= %s", [at]).fetchone()[0]
                rewound = commands.replay("audit", from_time=since, timeout=PATIENCE)
                (lowest,) = conn.execute(
                    "select least(%s, min(id)) from partbox.record where created_at >= %s", [lowest, since]
                ).fetchone()
            else:
                rewound = commands.replay("audit", from_id=at, timeout=PATIENCE)
            assert rewound > 0
    eventually(lambda: consumed(conn, "audit"), interval=0.05)
    verdict = audit.verdict(ledger.published())
    assert verdict.wrong() == {}
    ids = dict(conn.execute("select event_id::text, id from partbox.record").fetchall())
    again = {ids[delivery.event] for delivery in verdict.repeats}
    assert min(again) >= lowest
    assert len(again) >= 150


@pytest.mark.thorough
def test_a_replay_of_everything_delivers_everything_twice_in_order(conn, ledger, commands, consumer):
    commands.create("audit")
    audit = consumer("audit")
    audit.start(processes=2)
    ledger.publish_now(ledger.names, burst=5)
    delivered_at_least(audit, 300)
    assert commands.replay("audit", from_id=1, timeout=PATIENCE) == 256
    eventually(lambda: len(audit.journal.deliveries()) == 600, PATIENCE, 0.05)
    eventually(lambda: consumed(conn, "audit"), interval=0.05)
    verdict = audit.verdict(ledger.published())
    assert (verdict.wrong(), len(verdict.repeats)) == ({}, 300)


def test_a_handler_that_does_not_end_fails_a_replay_which_leaves_the_subscription_going_on(
    conn, ledger, commands, consumer, tmp_path
):
    audit = consumer("audit")
    commands.create("audit")
    audit.start()
    working(conn, "audit", 1)
    gate = tmp_path / "gate"
    (stuck,) = ledger.publish_now(ledger.names[:1], gate=str(gate))
    eventually(lambda: stuck in audit.journal.started(), PATIENCE)
    with pytest.raises(PartboxError, match=r"after 1 s 1 partition is still owned by audit-0 .* delivery goes on$"):
        commands.replay("audit", from_id=1, timeout=1)
    (other,) = ledger.publish_now(ledger.names[1:2])
    eventually(lambda: other in audit.journal.ended(), PATIENCE)  # by the same process, which has its partitions again
    assert stuck not in audit.journal.ended()
    gate.touch()
    eventually(lambda: consumed(conn, "audit"), PATIENCE)
    assert commands.replay("audit", from_id=1, timeout=PATIENCE) == 256
    eventually(lambda: len(audit.journal.deliveries()) == 4, PATIENCE)
    eventually(lambda: consumed(conn, "audit"), PATIENCE)


def test_a_drop_is_refused_while_workers_run_and_done_when_they_have_stopped(conn, ledger, commands, consumer):
    commands.create("audit")
    default, audit = consumer("default"), consumer("audit")
    default.start()
    node = audit.start()
    working(conn, "audit", 1)
    ledger.publish_now(ledger.names)
    delivered_at_least(audit, len(ledger.names))
    with pytest.raises(PartboxError, match=r"worker processes are still running: audit-0 .*, and delivery goes on$"):
        commands.drop("audit", timeout=3)
    assert node.stop() == 0
    commands.drop("audit")
    assert [each.name for each in commands.list()] == ["default"]
    again = audit.start()
    assert again.wait() == 1
    assert "there is no subscription 'audit'" in again.log
    ledger.publish_now(ledger.names)
    delivered_at_least(default, 2 * len(ledger.names))
    verdict = default.verdict(ledger.published())
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


def test_an_embedded_worker_says_once_that_it_is_paused(dsn, conn, commands, caplog):
    outbox = Outbox(dsn, heartbeat=0.1)
    got: list[int] = []

    @outbox.on("Step")
    def step(event):
        got.append(event.payload)

    caplog.set_level(logging.INFO, "partbox.supervisor")
    commands.pause("default")
    with outbox.worker():
        with psycopg.connect(dsn) as publishing:
            outbox.publish(publishing, "Step", 1)
        seen = heartbeats(conn)
        for _ in range(4):
            eventually(lambda since=seen: heartbeats(conn) != since)
            seen = heartbeats(conn)
        assert got == []
        commands.resume("default")
        eventually(lambda: got == [1])
    told = {"partbox.paused", "partbox.resumed"}
    said = [record.message for record in caplog.records if getattr(record, "event", None) in told]
    assert said == [
        "subscription 'default' is paused: nothing is delivered until `partbox subscription resume`",
        "subscription 'default' is delivered again",
    ]


def heartbeats(conn) -> object:
    return conn.execute("select heartbeat_at from partbox.instance").fetchone()
