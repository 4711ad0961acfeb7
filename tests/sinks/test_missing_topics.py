"""A topic, queue or stream that the broker does not have: its events wait; a fixed one is looked for at start."""

import os
import re
from typing import Any

import pytest
from arrivals import arrived, check, publish, states
from brokers import HOST, free_port
from forked_commands import shared
from waiting import eventually

from partbox import Outbox, SettingsError
from partbox.sinks import sink, sink_of
from partbox.sinks.amqp import WARNED_EVERY, RabbitSink

LAST_ERRORS = "select distinct last_error from partbox.parked where last_error is not null"


@pytest.fixture(autouse=True)
def _has_topics(kind, broker):
    if broker.no_topics:
        pytest.skip(broker.no_topics)


@pytest.fixture
def missing(nowhere) -> str:
    return nowhere.topics[0]


def lacking(place) -> str:
    return place.broker.lacking.format(topic=re.escape(place.topics[0]))


def test_events_for_a_missing_topic_arrive_in_order_once_it_exists(dsn, conn, nowhere):
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(sink_of(nowhere.broker.strict_url, nowhere.template), "*", max_attempts=None)
    publish(outbox, conn, range(40))
    with outbox.worker() as worker:
        eventually(lambda: any(re.search(lacking(nowhere), error) for (error,) in conn.execute(LAST_ERRORS)))
        assert "dead" not in states(conn)
        nowhere.prepare()
        eventually(lambda: arrived(nowhere) == 40)
        assert worker.wait_until_empty(120)
    assert states(conn) == set()
    check(nowhere.all(), range(40))


@pytest.fixture
def relay(dsn, tmp_path):
    """Runs `partbox relay`: its exit code, and what it says."""

    def relay(url: str, topic: str) -> tuple[int, str]:
        log = tmp_path / "log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        command = ("partbox", "relay", "--to", url, "--topic", topic, "--processes", "1", "--until-empty")
        process = shared().start_into(log, *command, cwd=tmp_path, env={**environment, "PARTBOX_DSN": dsn})
        return process.wait(), log.read_text()

    return relay


def test_a_relay_to_a_missing_topic_does_not_start(relay, nowhere, missing, dsn):
    code, said = relay(nowhere.broker.strict_url, missing)
    assert (code != 0, said.count("\n")) == (True, 1), said
    assert re.search(lacking(nowhere), said)
    assert {each.name for each in Outbox(dsn).subscriptions.list()} == {"default"}


@pytest.mark.thorough
def test_a_relay_to_an_existing_topic_starts(relay, place, dsn, conn):
    publish(Outbox(dsn), conn, range(10))
    code, said = relay(place.broker.strict_url, place.topics[0])
    assert code == 0, said
    check(place.all(), range(10))


def test_a_topic_that_depends_on_the_event_is_not_checked_at_the_start(nowhere):
    sink_of(nowhere.broker.strict_url, nowhere.template).check()


def test_a_relay_waits_for_a_broker_that_cannot_be_reached(broker, missing, monkeypatch):
    monkeypatch.setattr(sink, "ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr("partbox.sinks.kafka.ANSWER_TIMEOUT", 0.5)
    nobody = f"{HOST}:{free_port()}"
    sink_of(re.sub(rf"{HOST}:\d+", nobody, broker.url), missing).check()


@pytest.mark.parametrize("kind", ["kafka", pytest.param("apache-kafka", marks=pytest.mark.soak)], indirect=True)
def test_a_topic_that_the_broker_creates_by_itself_is_not_missing(broker, missing):
    if broker.no_faults:
        pytest.skip("whether a cluster that is not ours makes topics is not known")
    sink_of(broker.url, missing).check()


@pytest.mark.parametrize("kind", ["rabbitmq"], indirect=True)
def test_a_missing_exchange_is_named_and_its_events_wait(dsn, conn, nowhere, missing, relay):
    url = f"{nowhere.broker.url}?exchange={missing}"
    with pytest.raises(SettingsError, match=f"RabbitMQ has no exchange '{missing}': declare it"):
        sink_of(url).check()
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(RabbitSink(nowhere.broker.url, nowhere.template, exchange=missing), "*", max_attempts=None)
    publish(outbox, conn, range(10))
    with outbox.worker():
        eventually(lambda: any(f"has no exchange '{missing}'" in error for (error,) in conn.execute(LAST_ERRORS)))
        nowhere.prepare()
        nowhere.broker.exchange(missing)
        unbound = f"at the exchange '{missing}': bind one"
        eventually(lambda: any(unbound in error for (error,) in conn.execute(LAST_ERRORS)))
        nowhere.broker.exchange(missing, *nowhere.topics)
        eventually(lambda: arrived(nowhere) == 10)
    check(nowhere.all(), range(10))


@pytest.mark.parametrize("kind", ["rabbitmq"], indirect=True)
def test_messages_that_no_queue_would_get_are_warned_of_once_a_minute_with_the_remedy(
    dsn, conn, nowhere, missing, caplog
):
    nowhere.prepare()
    nowhere.broker.exchange("unbound")
    sink = RabbitSink(nowhere.broker.url, nowhere.template, exchange="unbound")
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(sink, "*", max_attempts=None)
    publish(outbox, conn, range(10))

    def warned() -> list[Any]:
        return [each for each in caplog.records if getattr(each, "event", "") == "partbox.no_queue"]

    with outbox.worker():
        eventually(lambda: sink._returned >= 20)
        (first,) = warned()
        assert first.levelname == "WARNING"
        text = f"RabbitMQ has no queue for '{missing}' at the exchange 'unbound': bind one; until then its events wait"
        assert text in first.getMessage()
        assert (first.topic, first.messages >= 1) == (missing, True)
        sink._warned_at -= WARNED_EVERY
        eventually(lambda: len(warned()) == 2)
        assert warned()[1].messages > 20
        nowhere.broker.exchange("unbound", *nowhere.topics)
        eventually(lambda: arrived(nowhere) == 10)
    check(nowhere.all(), range(10))
    assert len(warned()) == 2
