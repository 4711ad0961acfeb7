"""A real Prometheus watches a real cluster through a join and failures: everything that the dashboards ask has an
answer, and alerts fire. With `--soak` it also lives through a backlog, a kill, a theft of partitions, a log without
segments ahead, a pause and an outage of the database, and every alert fires and clears, as the unit tests of the rules
have it without a cluster."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from expressions import alerts, of_boards
from node import Node
from owners import Owners
from prometheus_client import CollectorRegistry, start_http_server
from promtool import needed
from waiting import eventually
from watcher import Watcher, free_port

from partbox import Event, Outbox

PATIENCE = 120.0
LEASE = {"lease": 3, "heartbeat": 0.3}
BOTH_TIMES = {"PartboxTargetDown", "PartboxNoNode"}
FAILURES = {"PartboxFailing", "PartboxBlocked", "PartboxDead"}
BACKLOG = {"PartboxBacklogGrowing", "PartboxOldestPending", "PartboxLagGrowing"}
FORGOTTEN = {"PartboxNoInstance", "PartboxUnowned"}
VIOLENCE = {"PartboxRestarting", "PartboxFenceRejections"}
NO_SEGMENT, PAUSED, DATABASE_DOWN = "PartboxNoSegmentAhead", "PartboxPaused", "PartboxDatabaseDown"
DOCTOR = "PartboxDoctorProblem"  # a node looks once a minute, so this one fires and clears later than others
ALL = BOTH_TIMES | FAILURES | BACKLOG | FORGOTTEN | VIOLENCE | {NO_SEGMENT, PAUSED, DATABASE_DOWN, DOCTOR}
"""The alerts that fire in the run of full size."""

BEYOND = """
select setval('partbox.record_id_seq', max(upper)) from partbox.segment_ranges()
 where lower is not null
"""


class Shop:
    """The cluster, who publishes, and who watches."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.ports = {"a": free_port(), "b": free_port()}
        self.nodes: dict[str, Node] = {}
        shutil.copy(Path(__file__).with_name("shop_app.py"), folder)
        registry = CollectorRegistry()
        self.outbox = Outbox(dsn, registry=registry)
        self._server, self._thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        at = [f"127.0.0.1:{port}" for port in self.ports.values()]
        self.watcher = Watcher(folder, at, f"127.0.0.1:{self._server.server_port}")

    def start(self, name: str, processes: int = 2) -> None:
        """Start a node."""
        flags = ["--processes", str(processes), "--concurrency", "4", "--http", f"127.0.0.1:{self.ports[name]}"]
        settings: dict[str, Any] = {"dsn": self.dsn} | LEASE
        self.nodes[name] = Node(name, self.folder, self.folder, flags, settings, "shop_app:outbox")

    def publish(self, event_type: str, count: int = 1) -> None:
        with psycopg.connect(self.dsn) as conn:
            many = [Event(event_type, {}, aggregate_type=event_type, aggregate_id=str(n)) for n in range(count)]
            self.outbox.publish_many(conn, many)

    @contextmanager
    def busy(self, pause: float = 0.1) -> Iterator[None]:
        """Customers, whom an outage of the database does not stop for good."""
        closing = threading.Event()

        def buy() -> None:
            while not closing.wait(pause):
                with suppress(psycopg.Error):
                    self.publish("Placed", 20)

        customers = threading.Thread(target=buy)
        customers.start()
        try:
            yield
        finally:
            closing.set()
            customers.join()

    def say(self, name: str) -> Path:
        """A file that the handlers look for."""
        return self.folder / name

    def fires(self, names: set[str]) -> None:
        """Wait until all of these alerts fire; their texts are whole."""

        def all_fire() -> bool:
            firing = self.watcher.firing()
            assert names <= firing, f"{names - firing} do not fire; {firing} do"
            return True

        eventually(all_fire, PATIENCE, 0.25)
        told = [text for name, texts in self.watcher.annotated().items() if name in names for text in texts.values()]
        assert all(told)
        assert [text for text in told if "<no value>" in text or "<error" in text] == []

    def clears(self) -> None:
        """Wait until nothing fires."""

        def none_fires() -> bool:
            assert not (firing := self.watcher.firing()), f"{firing} fire, instances {self.watcher.now('up')}"
            return True

        eventually(none_fires, PATIENCE, 0.25)

    def close(self) -> None:
        self.watcher.close()
        for node in self.nodes.values():
            node.end()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def opened(dsn: str, folder: Path) -> Iterator[Shop]:
    shop = Shop(dsn, folder)
    try:
        yield shop
    finally:
        shop.close()


def rob(shop):
    """Take all partitions away from their owners, as if their leases were over, until a save of theirs is refused."""

    def robbed() -> bool:
        with psycopg.connect(shop.dsn, autocommit=True) as conn:
            conn.execute("update partbox.partition set epoch = epoch + 1, owner = null where subscription = 'default'")
        return shop.watcher.now("sum(partbox_fence_rejections_total)") > 0

    eventually(robbed, PATIENCE, 0.5)


def outrun(shop):
    """The ids leap over all segments, while a reader stays, beside whom none is made."""
    with psycopg.connect(shop.dsn) as reader:
        reader.execute("select from partbox.record limit 1")
        with psycopg.connect(shop.dsn, autocommit=True) as conn:
            conn.execute(BEYOND)
        shop.fires({NO_SEGMENT})


def are_right(answers):
    """What two nodes tell alike is shown once, and what happened is seen."""

    def shown(panel: str) -> list[list[float]]:
        """The series of the first expression of the only panel of this name."""
        (found,) = [series for place, series in answers.items() if f", {panel}, A" in place]
        return found

    assert {value for series in shown("Partitions") for value in series} == {256}
    assert max(value for series in shown("Dead") for value in series) == 3
    owners = [series for series in shown("Owner of each partition") if any(series)]
    assert len(owners) == 256
    assert any(len(set(series)) > 1 for series in owners), "partitions have moved"
    assert max(value for series in shown("Partitions moved") for value in series) > 0
    assert max(value for series in shown("Fence rejections") for value in series) > 0
    assert max(value for series in shown("Paused") for value in series) == 1


def all_are_answered(shop):
    """Wait until nothing that the dashboards ask was asked in vain."""
    missing = of_boards()

    def all_answered():
        nonlocal missing
        missing = [each for each in missing if not shop.watcher.since_start(each.text)]
        assert [place for place, _ in missing] == []
        return True

    eventually(all_answered, PATIENCE, 0.5)


@needed
def test_every_expression_has_an_answer_and_failures_are_reported(dsn, tmp_path):
    with opened(dsn, tmp_path) as shop:
        shop.start("a", processes=1)
        with shop.busy(pause=0.5), psycopg.connect(shop.dsn, autocommit=True) as conn:
            eventually(lambda: Owners(conn).even(1), PATIENCE, 0.1)
            eventually(lambda: shop.watcher.now("sum(rate(partbox_delivered_total[6s]))") > 0, PATIENCE, 0.25)
            shop.publish("Shipped", 5)
            shop.publish("Lost", 3)
            shop.publish("Billed", 5)
            shop.publish("Exported", 5)
            shop.start("b", processes=1)
            shop.fires(FAILURES)
            eventually(lambda: Owners(conn).even(2), PATIENCE, 0.1)
            # The other was scraped before, so its counts are seen to rise: of what it takes over, and of its own plans.
            shop.nodes["b"].stop()
            os.kill(*Owners(conn).instances("a").values(), signal.SIGKILL)
            all_are_answered(shop)
        assert shop.watcher.ailing() == []


@needed
@pytest.mark.soak
def test_every_expression_has_an_answer_and_every_alert_fires_and_clears(own_server, tmp_path):
    with opened(own_server.dsn, tmp_path) as shop:
        live_through_everything(shop, own_server)


def live_through_everything(shop, own_server):
    shop.fires(BOTH_TIMES)
    shop.start("a")
    with shop.busy():
        eventually(lambda: shop.watcher.now("sum(rate(partbox_delivered_total[6s]))") > 0, PATIENCE, 0.25)
        shop.start("b")
        with psycopg.connect(shop.dsn, autocommit=True) as conn:
            eventually(lambda: Owners(conn).even(4), PATIENCE, 0.1)
            shop.publish("Billed", 5)
            shop.publish("Exported", 5)
            shop.clears()

            shop.outbox.subscriptions.create("audit")
            shop.publish("Shipped", 5)
            shop.publish("Lost", 3)
            eventually(lambda: shop.watcher.now('max(partbox_records{status="dead"})') == 3, PATIENCE, 0.25)
            shop.fires(FORGOTTEN | FAILURES | {DOCTOR})
            shop.say("shut").touch()  # from here on all handlers are busy
            shop.fires(BACKLOG)
            shop.outbox.subscriptions.drop("audit")
            shop.say("shut").unlink()
            shop.say("shipping").touch()
            shop.say("found").touch()
            shop.outbox.dead.replay_all()
            shop.clears()

            os.kill(next(iter(Owners(conn).instances("b").values())), signal.SIGKILL)
            rob(shop)
            shop.fires(VIOLENCE)
            shop.clears()

            outrun(shop)
            shop.clears()  # supervisors make segments by themselves

            shop.outbox.subscriptions.pause("default")
            shop.fires({PAUSED})
            shop.outbox.subscriptions.resume("default")
            shop.clears()

        own_server.server.stop("immediate")
        shop.fires({DATABASE_DOWN})
        own_server.server.start()
        shop.clears()

    assert shop.watcher.ailing() == []
    answers = {place: shop.watcher.since_start(text) for place, text in of_boards()}
    assert [place for place, series in answers.items() if not series] == []
    are_right(answers)


def test_every_alert_fires_in_the_run_of_full_size():
    assert {rule["alert"] for rule in alerts()} == ALL
