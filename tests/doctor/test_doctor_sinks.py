"""What doctor says of brokers."""

import pytest
from waiting import eventually

from partbox import Dead, DownstreamUnavailable, Outbox
from partbox.cli.views.cluster_tables import list_sink_rows
from partbox.db.inspect import stats
from partbox.doctor.checks import handlers
from partbox.sinks import Sink
from partbox.worker.reports import process_notes


class Gone(Sink):
    async def send(self, messages):
        raise DownstreamUnavailable("the bus is gone")


@pytest.fixture
def outbox(dsn, monkeypatch) -> Outbox:
    monkeypatch.setattr(handlers, "SINK_OUTAGE", 0.1)
    monkeypatch.setattr(process_notes, "TRAFFIC_INTERVAL", 0.0)
    outbox = Outbox(dsn, retry="fixed:0.05")
    outbox.register(Gone(), "*", max_attempts=None, name="bus")
    return outbox


def test_a_broker_that_takes_nothing_is_named_with_its_last_error(clinic, outbox):
    clinic.plant.publish("1")
    with outbox.worker():
        eventually(lambda: "sink" in clinic.causes())
        found = clinic.one("sink")
        assert found["severity"] == "problem"
        assert found["summary"].startswith("the broker of bus has acknowledged nothing for")
        assert "DownstreamUnavailable: the bus is gone" in found["evidence"][0]
        ((name, sent, _, took, _, trouble),) = list_sink_rows(stats.read_cluster(clinic.conn, "partbox", "default"))
        assert (name, sent, took) == ("bus", "0", "-")
        assert "the bus is gone" in trouble


def alarm(event):
    raise ConnectionError("the pager is away")


def test_a_dead_letter_hook_that_fails_is_named_as_long_as_events_wait_for_it(clinic, dsn, monkeypatch):
    monkeypatch.setattr(handlers, "HOOK_OUTAGE", 0.1)
    monkeypatch.setattr(process_notes, "TRAFFIC_INTERVAL", 0.0)
    outbox = Outbox(dsn)
    outbox.register(lambda event: Dead("no use"), "*")
    outbox.on_dead_letter(alarm)
    clinic.plant.publish("1")
    with outbox.worker():
        eventually(lambda: "dead-letters" in clinic.causes())
        found = clinic.one("dead-letters")
        assert found["severity"] == "problem"
        assert found["summary"].startswith("1 dead event not passed on, for")
        assert found["evidence"][0].startswith("dead letters to test_doctor_sinks.alarm")
        assert "ConnectionError: the pager is away" in found["evidence"][0]
        assert "sink" not in clinic.causes()
        outbox.dead.discard(1)
        eventually(lambda: "dead-letters" not in clinic.causes())
