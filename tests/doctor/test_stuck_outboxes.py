"""Seven ways in which an outbox gets stuck: `partbox doctor` alone explains each, and its remedy ends it.

Workers are threads of this process; with `--soak` the same is shown of nodes of processes.
"""

import json
import os
import signal
import threading
from contextlib import closing, contextmanager

import psycopg
import pytest
from clinic import PATIENCE
from doctor_app import hanging
from waiting import eventually

from partbox.doctor import case
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import Limits
from partbox.settings import load
from partbox.worker.reports import process_notes


@pytest.fixture(params=["threads", pytest.param("processes", marks=pytest.mark.soak)])
def clinic(clinic, request):
    clinic.processes = request.param == "processes"
    return clinic


def remedy(finding, words: str) -> str:
    """The one remedy that holds these words."""
    (found,) = [each for each in finding["remedy"] if words in each]
    return found


def test_a_handler_that_blocks_its_key_is_found(clinic):
    clinic.work(max_attempts="none", retry="fixed:1h")
    clinic.owned()
    clinic.plant.publish("7", event_type="Broken", payload={"secret": "s3cret"})
    for _ in range(2):
        clinic.plant.publish("7")
    for attempts in (1, 2, 3):  # not by itself: a handler that is running it has the last word over the remedy
        tried = f"select count(*) from partbox.parked where state = 'retrying' and attempts = {attempts}"
        eventually(lambda tried=tried: clinic.number(tried) == 1, PATIENCE)
        if attempts < 3:
            clinic.run("blocked", "retry", "Order", "7")
    eventually(lambda: clinic.number("select count(*) from partbox.parked where state = 'held'") == 2)
    code, said = clinic.doctor()
    found = clinic.one("blocked-key")
    assert (code, said["healthy"], found["severity"]) == (1, False, "problem")
    assert found["subscription"] == "default"
    (key, *_) = found["evidence"]
    assert key.startswith("Order 7: record 1 (Broken) retrying, ")
    assert "2 events behind it" in key
    assert "ValueError: no such customer" in key
    assert "s3cret" not in json.dumps(said)
    assert "`partbox blocked retry Order 7`" in remedy(found, "retry")

    clinic.follow(remedy(found, "skip"))
    eventually(lambda: clinic.number("select count(*) from partbox.parked where state <> 'dead'") == 0)
    assert clinic.causes() == ["dead"]


def test_a_handler_that_hangs_is_found(clinic, monkeypatch):
    """It is named though its process saves idle cursors, and heartbeats go on."""
    monkeypatch.setattr(process_notes, "LONG_RUN", 0.1)
    if not clinic.processes:
        monkeypatch.setattr(case, "HANDLER_LIMIT", 0.2)
    clinic.work("web-1", concurrency=1)
    clinic.owned()
    clinic.plant.publish("7", event_type="Hanging", payload={"secret": "s3cret"})
    hangs = "select count(*) from partbox.instance where running is not null"
    eventually(lambda: clinic.number(hangs) == 1, PATIENCE)  # in a page with others it need not be the first
    for number in range(3):
        clinic.plant.publish(str(number))
    found = eventually(lambda: clinic.one("hanging-handler") if "hanging-handler" in clinic.causes() else None, 120)
    assert clinic.doctor()[0] == 1
    (named, behind, everywhere) = found["evidence"]
    pid = clinic.number("select pid from partbox.instance")
    assert f" in process {pid} on web-1: record 1 (Hanging) of Order 7" in named
    assert " pending, 0 held" in behind
    assert everywhere == "in all partitions of that process: 4 pending"
    assert f"`py-spy dump --pid {pid}` on web-1" in remedy(found, "py-spy")
    assert "PARTBOX_HANDLER_TIMEOUT=30s" in remedy(found, "give handlers a timeout")

    hanging.set()
    if clinic.processes:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: "hanging-handler" not in clinic.causes())


def test_an_outbox_whose_workers_are_all_down_is_found(clinic):
    clinic.dies("node-a")
    clinic.plant.publish("7")
    found = clinic.one("no-workers")
    assert clinic.doctor()[0] == 1
    assert found["evidence"][0].startswith("1 record pending, the oldest published ")
    assert "its lease is over: process " in found["evidence"][1]
    assert " on node-a, heartbeat " in found["evidence"][1]
    assert "`partbox worker MODULE:OUTBOX`" in remedy(found, "start workers")

    clinic.work("node-b")
    eventually(clinic.nothing, PATIENCE, 0.2)


def test_an_idle_transaction_that_holds_xmin_is_found(clinic, run):
    with closing(clinic.session("billing")) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select 's3cret' from partbox.meta")
        found = clinic.one("idle-transaction", over=0.0)
        assert clinic.causes() == []  # a minute is not over
        pid = other.info.backend_pid
        assert clinic.doctor("--transactions-over", "0s")[0] == 1
        assert f"pid {pid}" in found["summary"]
        who, state, *effects = found["evidence"]
        assert who.startswith(f"pid {pid} (user ")
        assert "application billing): select …" in who
        assert state.startswith("idle in transaction for ")
        assert any("vacuum keeps every dead row" in each for each in effects)
        assert "s3cret" not in run("doctor", "--transactions-over", "0s")[1]
        clinic.follow(remedy(found, "pg_terminate_backend"))
        eventually(lambda: clinic.causes(over=0.0) == [])


def test_a_partition_that_is_unowned_though_workers_live_is_found(clinic, brisk):
    clinic.work("node-a")
    clinic.owned()
    clinic.ghost("node-ghost")
    clinic.owned(128)
    clinic.conn.execute(
        "insert into partbox.record (partition, event_id, event_type) select p.partition, gen_random_uuid(), 'Placed'"
        " from partbox.partition p where owner is null limit 5"
    )
    found = clinic.one("unowned")
    assert clinic.doctor()[0] == 1
    assert found["summary"] == "128 partitions without an owner, though workers live: 2 processes"
    assert "not claimed by their assignee, process 4711 on node-ghost" in found["evidence"][0]
    assert found["evidence"][1] == "5 records pending in them"
    assert "`kill 4711` on node-ghost" in found["remedy"][0]

    clinic.conn.execute("delete from partbox.instance where pid = 4711")
    clinic.owned()
    eventually(clinic.nothing, PATIENCE, 0.2)


def test_a_flood_of_dead_letters_is_found(clinic):
    clinic.work(max_attempts=1)
    clinic.owned()
    for number in range(12):
        clinic.plant.publish(str(number % 4), event_type="Broken")  # of ten aggregates: an outage, and deferred
    eventually(lambda: clinic.number("select count(*) from partbox.parked where state = 'dead'") == 12)
    found = clinic.one("dead-flood")
    assert clinic.doctor()[0] == 1
    failure = "Broken in broken(): ValueError: no such customer"
    assert found["summary"] == f"12 events died within the last hour, {failure}"
    assert found["evidence"][0].startswith("12 of type Broken: ValueError: no such customer (the newest is record ")
    assert clinic.follow(remedy(found, "dead show")).startswith("record ")
    assert "`partbox dead replay --all --type=Broken`" in remedy(found, "replay")

    # No event has died since: what is left is a decision about those that did.
    clinic.conn.execute("update partbox.parked set parked_at = now() - interval '6 minutes'")
    found = clinic.one("dead")
    assert clinic.causes() == ["dead"]
    assert found["summary"] == f"12 dead events, {failure}"
    (note,) = [each for each in clinic.doctor()[1]["findings"] if each["cause"] == "dead-flood"]
    assert (note["severity"], note["remedy"]) == ("note", ["see by what they died: `partbox dead list`"])
    assert note["summary"].startswith("12 events died within the last hour, the last 6 m ago")


def test_a_subscription_that_was_paused_and_forgotten_is_found(clinic):
    clinic.work()
    clinic.owned()
    clinic.run("subscription", "pause", "default")
    eventually(lambda: clinic.owners() == 0)
    clinic.plant.publish("7")
    assert clinic.findings() == []  # a short pause is a note
    clinic.conn.execute("update partbox.subscription set paused_at = now() - interval '2 hours'")
    found = clinic.one("paused")
    assert clinic.doctor()[0] == 1
    assert found["summary"] == "paused 2 h ago: nothing is delivered, and the log keeps every record"
    assert found["evidence"][0].startswith("1 record pending, ")

    clinic.follow(remedy(found, "resume"))
    clinic.owned()
    eventually(lambda: clinic.number("select count(*) from partbox.record_status where status <> 'done'") == 0)
    assert clinic.findings() == []


def test_a_healthy_and_busy_cluster_has_no_findings(clinic):
    """Publishers at work, a node that joins, one that leaves."""

    def healthy() -> None:
        """Doctor looks again when all is handed over, which it takes three seconds to be sure of."""
        looked = examine_outbox(lambda: clinic.dsn, load(), Limits(), wait=lambda seconds: clinic.owned())
        assert [each for each in looked.findings if each.severity != "note"] == []

    with busy(clinic):
        leave = clinic.work("node-a", lease="6s", heartbeat="1s")
        clinic.owned()
        healthy()
        clinic.work("node-b", lease="6s", heartbeat="1s")
        eventually(lambda: clinic.number("select count(*) from partbox.instance") == 2, PATIENCE)
        healthy()
        leaving = threading.Thread(target=leave)
        leaving.start()
        eventually(
            lambda: clinic.number("select count(*) from partbox.instance where draining") or not leaving.is_alive()
        )
        healthy()
        leaving.join()
        healthy()
        eventually(lambda: clinic.number("select count(*) from partbox.record") > 30)
    if clinic.processes:
        assert clinic.findings() == []


@contextmanager
def busy(clinic):
    """A publisher at work."""
    stop = threading.Event()

    def publish() -> None:
        with psycopg.connect(clinic.dsn, autocommit=True) as conn:
            number = 0
            while not stop.wait(0.02):
                number += 1
                with conn.transaction():
                    clinic.plant.outbox.publish(
                        conn, "Placed", {}, aggregate_type="Order", aggregate_id=str(number % 50)
                    )

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        yield
    finally:
        stop.set()
        publisher.join()


@pytest.mark.parametrize("arguments", [(), ("--strict",)])
def test_an_outbox_without_records_or_workers_is_healthy(clinic, arguments):
    code, said = clinic.doctor(*arguments)
    assert (code, said["healthy"]) == (0, True)
    assert clinic.findings() == []
