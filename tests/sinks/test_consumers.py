"""The consumers of the pages on brokers: each is run as it stands there, is killed, gets everything twice, and has one
effect for each event, those of an aggregate in their order.
"""

import os
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from broker_sqs import Sqs
from brokers import HOST, Broker, free_port
from forked_commands import Command, Forks, forks
from kafkas import Kafka
from waiting import eventually

from partbox import Outbox
from partbox.sinks import Sink, sink_of, sqs

__all__ = ["forks"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "kafka": "kafka.md",
    "apache-kafka": "kafka.md",
    "rabbitmq": "rabbitmq.md",
    "nats": "nats.md",
    "redis": "redis.md",
    "webhook": "webhooks.md",
    "sqs": "sqs.md",
}
SMALLER = {
    "num_replicas=3": "num_replicas=1",  # one server
    "duplicate_window=120": "duplicate_window=0.1",  # what is sent again comes again
    '"VisibilityTimeout": "60"': '"VisibilityTimeout": "2"',  # a test does not wait for a minute
    "ack_wait=5": "ack_wait=2",
    '"session.timeout.ms": 6_000,': '"session.timeout.ms": 3_500, "heartbeat.interval.ms": 500,',
}
PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
KEYS = 4
EVENTS = 60
MANY = 20


class Consumer:
    """The programs of a page, in a folder of their own."""

    def __init__(self, kind: str, broker: Broker, folder: Path, dsn: str, forks: Forks) -> None:
        self.topic = f"t{uuid4().hex[:8]}-order-events"
        self._broker, self._folder, self._forks, self._port = broker, folder, forks, free_port()
        self._url = f"http://{HOST}:{self._port}/hooks" if kind == "webhook" else broker.url
        self._environment = dict(os.environ) | self._places(kind, broker) | {"BILLING_DSN": dsn}
        self.runs: list[Command] = []
        self._programs = dict(PROGRAM.findall((DOCS / PAGES[kind]).read_text(encoding="utf-8")))
        for name, program in self._programs.items():
            (folder / name).write_text(self._adapted(program), encoding="utf-8")

    def sink(self) -> Sink:
        return sink_of(self._url, self.topic, SECRET)

    def declare(self) -> None:
        """What the page has declared before."""
        if isinstance(self._broker, Kafka):
            self._broker.prepare(self.topic)
        if "declare.py" in self._programs:
            declared = self._forks.start("python", "declare.py", cwd=self._folder, env=self._environment)
            _, err = declared.communicate()
            assert declared.wait() == 0, err

    def change(self, name: str, old: str, new: str) -> None:
        """Have a program say something else than on the page."""
        program = (self._folder / name).read_text(encoding="utf-8")
        assert old in program
        (self._folder / name).write_text(program.replace(old, new), encoding="utf-8")

    def start(self) -> None:
        command = ["consumer.py"]
        if "receiver.py" in self._programs:
            command = ["-m", "uvicorn", "receiver:app", "--port", str(self._port), "--log-level", "error"]
        log = self._folder / f"log-{len(self.runs)}"
        self.runs.append(self._forks.start_into(log, "python", *command, cwd=self._folder, env=self._environment))

    def kill(self) -> None:
        """End the one that was started last."""
        assert self.runs[-1].poll() is None, self.log()
        self.end(self.runs[-1])

    def end(self, run: Command) -> None:
        run.kill()
        run.wait()

    def log(self) -> str:
        return "".join(each.read_text() for each in sorted(self._folder.glob("log-*")))

    def _adapted(self, program: str) -> str:
        """In a topic of its own, on a small scale."""
        for large, small in SMALLER.items():
            program = program.replace(large, small)
        return program.replace("ORDERS", self.topic.upper()).replace("order-events", self.topic)

    def _places(self, kind: str, broker: Broker) -> dict[str, str]:
        path = {"PYTHONPATH": os.pathsep.join([str(self._folder), os.environ.get("PYTHONPATH", "")])}
        if isinstance(broker, Kafka):
            return path | {"KAFKA_SERVERS": broker.servers}
        if isinstance(broker, Sqs):
            return path | {"AWS_ENDPOINT_URL": broker.endpoint, "AWS_DEFAULT_REGION": broker.REGION}
        return path | {f"{kind.upper()}_URL": broker.url, "WEBHOOK_SECRET": SECRET}


@pytest.fixture
def consumer(kind: str, broker: Broker, tmp_path: Path, dsn: str, forks: Forks) -> Iterator[Consumer]:
    consumer = Consumer(kind, broker, tmp_path, dsn, forks)
    yield consumer
    running = [each for each in consumer.runs if each.poll() is None]
    for each in running:
        consumer.end(each)
    assert running or not consumer.runs, consumer.log()


@pytest.fixture
def again(kind: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Outbox], None]:
    """Has everything sent once more."""

    def again(outbox: Outbox) -> None:
        if kind == "sqs":  # as it takes an event again after five minutes
            entry = sqs._build_entry
            monkeypatch.setattr(
                sqs, "_build_entry", lambda *which: entry(*which) | {"MessageDeduplicationId": str(uuid4())}
            )
        outbox.subscriptions.replay("default", from_id=1)

    return again


@pytest.mark.thorough
def test_the_consumer_of_the_page_has_one_effect_for_each_event(dsn, conn, kind, consumer, again):
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(consumer.sink(), "*", max_attempts=None)
    conn.execute("create table charge (id int generated always as identity, order_id text, total int)")
    consumer.declare()

    def effects() -> list[tuple[str, int]]:
        return conn.execute("select order_id, total from charge order by id").fetchall()

    def publish(numbers: range) -> None:
        with conn.transaction():
            for number in numbers:
                order = f"{number % KEYS} ü"
                outbox.publish(conn, "OrderPlaced", {"total": number}, aggregate_type="Order", aggregate_id=order)
            outbox.publish(conn, "OrderSeen", None, aggregate_type="Order", aggregate_id="0 ü")

    consumer.start()
    publish(range(EVENTS))
    with outbox.worker():
        eventually(lambda: len(effects()) >= EVENTS // 4)
        consumer.kill()
        consumer.start()
        eventually(lambda: len(effects()) >= EVENTS)
    again(outbox)
    publish(range(EVENTS, EVENTS + KEYS))  # one of each aggregate, behind all that comes again
    with outbox.worker():
        eventually(lambda: {total for _, total in effects()} >= {*range(EVENTS, EVENTS + KEYS)})
    of_each: dict[str, list[int]] = defaultdict(list)
    for order, total in effects():
        of_each[order].append(total)
    if kind == "sqs":  # moto, unlike SQS, lets an event pass those of its group whose timeouts end a moment earlier
        of_each = {order: sorted(totals) for order, totals in of_each.items()}
    assert of_each == {f"{key} ü": [*range(key, EVENTS + KEYS, KEYS)] for key in range(KEYS)}
    assert outbox.dead.list() == []


@pytest.mark.parametrize("kind", ["redis"])
def test_a_consumer_that_was_idle_for_a_while_takes_later_messages(dsn, conn, consumer, broker):
    """A client that gives up after as long as the page's program blocks ends it here for sure, not just mostly."""
    conn.execute("create table charge (id int generated always as identity, order_id text, total int)")
    consumer.change("consumer.py", "block=5_000", "block=6_000")
    before = broker.calls("xreadgroup")
    consumer.start()
    eventually(lambda: broker.calls("xreadgroup") >= before + 3)  # for what it had, in vain for what is new, and again
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(consumer.sink(), "*", max_attempts=None)
    with conn.transaction():
        outbox.publish(conn, "OrderPlaced", {"total": 7}, aggregate_type="Order", aggregate_id="1")
    with outbox.worker():
        eventually(lambda: conn.execute("select total from charge").fetchall() == [(7,)])


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["apache-kafka"], indirect=True)
def test_each_event_has_one_effect_while_consumers_join_die_and_return_late(dsn, conn, broker, consumer, again):
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(consumer.sink(), "*", max_attempts=None)
    conn.execute("create table charge (id int generated always as identity, order_id text, total int)")
    consumer.declare()
    published = 0

    def more() -> None:
        nonlocal published
        with conn.transaction():
            for number in range(published, published := published + 10 * EVENTS):
                order = f"{number % MANY}"
                outbox.publish(conn, "OrderPlaced", {"total": number}, aggregate_type="Order", aggregate_id=order)

    def effects() -> list[tuple[str, int]]:
        return conn.execute("select order_id, total from charge order by id").fetchall()

    def reach(number: int) -> None:
        eventually(lambda: len(effects()) >= number, 120, moves=lambda: len(effects()))

    with outbox.worker():
        for number in (1, 2, 3):  # each takes partitions away from the others
            more()
            consumer.start()
            eventually(lambda number=number: len(broker.shares("billing")) == number)
            reach(published)
        late, dying, _ = consumer.runs
        assert [each.poll() for each in consumer.runs] == [None] * 3, consumer.log()
        late.send_signal(signal.SIGSTOP)
        more()
        eventually(lambda: len(broker.shares("billing")) == 2)  # the others have its partitions
        more()
        late.send_signal(signal.SIGCONT)
        consumer.end(dying)
        again(outbox)
        more()
        reach(published)
    of_each: dict[str, list[int]] = defaultdict(list)
    for order, total in effects():
        of_each[order].append(total)
    assert of_each == {f"{key}": [*range(key, published, MANY)] for key in range(MANY)}


def test_each_page_has_one_consumer_or_receiver(kind):
    names = [name for name, _ in PROGRAM.findall((DOCS / PAGES[kind]).read_text(encoding="utf-8"))]
    assert [name for name in names if name != "declare.py"] in (["consumer.py"], ["receiver.py"])
