"""What sinks have sent: counted, in the row of each process, said by doctor, status and the page."""

import asyncio
import json
import threading

import psycopg
import pytest
from planted_records import Planter
from prometheus_client import CollectorRegistry
from waiting import eventually

from partbox import Outbox, UnrecoverableError
from partbox.dashboard.frame import build_subscription, make_process_labels
from partbox.dashboard.history import ChartPoint
from partbox.db.delivery.traffic import SinkTraffic, merge_traffic
from partbox.db.inspect import stats
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import LONG_TRANSACTION, limits_of
from partbox.observe.observer import Answer
from partbox.sinks import Sink
from partbox.worker.reports import process_notes
from partbox.worker.reports.process_notes import TrafficObserver


class Broker(Sink):
    """Answers when it is `open`; what it makes of each payload is in `wrong`, by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.wrong: dict[int, BaseException] = {}

    async def send(self, messages):
        assert await asyncio.to_thread(self.open.wait, 60)
        return [self.wrong.pop(message.event.payload["n"], None) for message in messages]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def outbox(dsn, broker, registry, monkeypatch) -> Outbox:
    monkeypatch.setattr(process_notes, "TRAFFIC_INTERVAL", 0.0)
    outbox = Outbox(dsn, retry="fixed:0.05", registry=registry)
    outbox.register(broker, "*", max_attempts=None, name="bus")
    return outbox


def publish(conn, count: int) -> None:
    for number in range(count):
        Planter(conn).publish(str(number), payload={"n": number})


def sample(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(f"partbox_sink_{name}", {"subscription": "default", "handler": "bus"})


def seen(dsn: str) -> list[SinkTraffic]:
    with psycopg.connect(dsn) as conn:
        return stats.read_cluster(conn, "partbox", "default").sinks


def findings(outbox: Outbox) -> list[tuple[str, str]]:
    report = examine_outbox(lambda: outbox.dsn, outbox.settings, limits_of(outbox.settings, LONG_TRANSACTION))
    return [
        (each.severity, " ".join([each.summary, *each.evidence])) for each in report.findings if each.cause == "sink"
    ]


def test_messages_that_a_broker_accepts_refuses_and_fails_are_counted_and_shown(outbox, conn, broker, registry):
    publish(conn, 6)
    broker.wrong = {1: RuntimeError("busy"), 2: UnrecoverableError("too large")}
    with outbox.worker():
        eventually(lambda: sample(registry, "in_flight") == 6)
        eventually(lambda: [each.in_flight for each in seen(outbox.dsn)] == [6])
        broker.open.set()
        eventually(lambda: sample(registry, "sent_total") == 5)
        assert (sample(registry, "in_flight"), sample(registry, "retries_total")) == (0, 1)
        assert sample(registry, "acknowledged_seconds_count") == 5
        eventually(lambda: [(each.sent, each.in_flight, each.retries) for each in seen(outbox.dsn)] == [(5, 0, 1)])
        ((severity, said),) = findings(outbox)
        assert severity == "note"
        assert "bus: 5 sent, acknowledged in" in said
        assert "0 in flight, 1 sent again" in said


def test_a_process_without_sinks_writes_no_traffic_of_sinks(dsn, conn, monkeypatch):
    monkeypatch.setattr(process_notes, "TRAFFIC_INTERVAL", 0.0)
    outbox = Outbox(dsn)
    outbox.register(lambda event: None, "*", name="plain")
    publish(conn, 1)
    with outbox.worker() as worker:
        assert worker.wait_until_empty(120)
        assert conn.execute("select sinks from partbox.instance").fetchall() == [(None,)]


def test_the_trouble_of_a_sink_lasts_until_something_is_acknowledged():
    now = [100.0]
    observer = TrafficObserver(lambda: now[0])

    def send(acknowledged: int, retried: int, error: BaseException | None = None) -> SinkTraffic:
        observer.sending("bus", acknowledged + retried)
        observer.answered("bus", Answer(acknowledged + retried, acknowledged, 0, retried, 0.5, error))
        (traffic,) = observer.list_totals()
        return traffic

    assert send(4, 0) == SinkTraffic("bus", 4, 0, 0, 2.0)
    assert send(0, 2, OSError("amqp://ada:secret@there is gone")).failing == 0.0
    now[0] += 7
    failing = send(0, 2, OSError("amqp://ada:secret@there is gone"))
    assert (failing.failing, failing.retries, failing.mean) == (7.0, 4, 0.5)
    assert failing.error is not None
    assert "secret" not in failing.error
    assert send(1, 1, OSError("one of them")).error is None


def test_traffic_of_processes_is_summed_by_sink_and_the_longest_trouble_is_kept():
    one = SinkTraffic("bus", 1, 2, 3, 0.5, "gone", 9.0)
    two = SinkTraffic("bus", 10, 20, 30, 5.0, "slow", 2.0)
    assert merge_traffic([one, SinkTraffic("aux"), two]) == [
        SinkTraffic("bus", 11, 22, 33, 5.5, "gone", 9.0),
        SinkTraffic("aux"),
    ]


def test_the_dashboard_gets_the_numbers_of_each_sink(outbox, conn, broker):
    publish(conn, 2)
    broker.open.set()
    with outbox.worker() as worker:
        assert worker.wait_until_empty(120)
        eventually(lambda: [each.sent for each in seen(outbox.dsn)] == [2])
        cluster = stats.read_cluster(conn, "partbox", "default")
        (sent,) = build_subscription(cluster, make_process_labels()(cluster.instances), ChartPoint(0, 0, 0, 0), [])[
            "sinks"
        ]
    assert (sent["name"], sent["sent"], sent["in_flight"], sent["error"]) == ("bus", 2, 0, None)
    json.dumps(sent)
