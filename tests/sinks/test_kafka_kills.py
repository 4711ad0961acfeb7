"""Two minutes of load on three nodes of Apache Kafka, of which one after the other is killed, as relays are.

One run; with KAFKA_RUNS=10 in the environment ten, each with other choices.
"""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from arrivals import check, publish
from relays import Relay
from waiting import eventually

from partbox import Outbox

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("kind", ["kafka-cluster"], indirect=True)]

SECONDS = 120.0
PATIENCE = 120.0
"""Seconds in which nothing goes on."""
KEYS = 1_000
AT_ONCE = 200
PAUSE = 0.05
CALM = 5_000
"""Events after the last kill, none of which comes twice."""
USUAL = {"lease": 10, "heartbeat": 1}


class Load:
    """Publishes in a thread of its own, `published` events so far."""

    def __init__(self, dsn: str) -> None:
        self.published = 0
        self._outbox, self._over = Outbox(dsn), threading.Event()

    def more(self, events: int) -> None:
        with psycopg.connect(self._outbox.dsn) as conn:
            publish(self._outbox, conn, range(self.published, self.published + events), keys=KEYS)
        self.published += events

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._go_on)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(PAUSE):
            self.more(AT_ONCE)


class Kills:
    """Kills, freezes and restarts leaders, and kills relays meanwhile; goes on once another node leads."""

    def __init__(self, place, start: Callable[[str], Relay], chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._place, self._start, self._chance = place, start, chance
        self.relays = {name: start(name) for name in ("one", "other")}
        self._of_relays = self._shuffled(self.worker_killed, self.worker_killed, self.relay_killed)
        self._of_leaders = self._shuffled(
            self.leader_killed, self.leader_killed, self.leader_frozen, self.leader_restarted
        )

    def leader_killed(self) -> None:
        self._without_leader(lambda node: node.kill())

    def leader_restarted(self) -> None:
        self._without_leader(lambda node: node.kill(signal.SIGTERM))

    def leader_frozen(self) -> None:
        """Until others lead; it has not heard of that when it goes on."""
        self._without_leader(lambda node: node.send(signal.SIGSTOP), lambda node: node.send(signal.SIGCONT))

    def worker_killed(self) -> None:
        self._any()[1].kill_one()

    def relay_killed(self) -> None:
        name, relay = self._any()
        relay.end()
        self.relays[name] = self._start(name)

    def some(self) -> None:
        """Something with a leader, and something with a relay in the middle of it."""
        self._told(next(self._of_leaders))

    def _without_leader(self, stop, start=lambda node: None) -> None:
        cluster, topic = self._place.broker, self._place.topics[0]
        partition = self._chance.randrange(4)
        leader = eventually(lambda: cluster.leader(topic, partition), PATIENCE)
        stop(leader)
        try:
            self._told(next(self._of_relays))
            eventually(lambda: cluster.leader(topic, partition) not in (None, leader), PATIENCE)
        finally:
            start(leader)
            cluster.start()

    def _told(self, fault: Callable[[], None]) -> None:
        self.done[fault.__name__] += 1
        fault()

    def _shuffled(self, *faults: Callable[[], None]) -> Iterator[Callable[[], None]]:
        while True:
            yield from self._chance.sample(faults, len(faults))

    def _any(self) -> tuple[str, Relay]:
        return self._chance.choice([*self.relays.items()])


@pytest.fixture
def start(dsn, place, tmp_path) -> Iterator[Callable[[str], Relay]]:
    """Starts relays to the place."""
    started: list[Relay] = []

    def start(name: str) -> Relay:
        options = ("--to", place.broker.url, "--topic", place.template, "--processes", "2")
        started.append(Relay(name, tmp_path, *options, dsn=dsn, **USUAL))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize("seed", range(int(os.environ.get("KAFKA_RUNS", "1"))))
def test_two_minutes_of_kills_lose_nothing_and_keep_the_order(dsn, place, start, seed, capsys):
    load, outbox = Load(dsn), Outbox(dsn)
    kills = Kills(place, start, random.Random(seed))

    def left() -> int:
        cluster = outbox.stats.cluster("relay")
        return cluster.pending + sum(cluster.parked.values())

    def all_sent() -> None:
        eventually(lambda: left() == 0, PATIENCE, 0.1, moves=left)

    eventually(lambda: {"relay"} <= {each.name for each in outbox.subscriptions.list()}, PATIENCE)
    began = time.monotonic()
    with load.going_on():
        while time.monotonic() < began + SECONDS:
            kills.some()
    all_sent()
    taken, before = time.monotonic() - began, load.published
    load.more(CALM)
    all_sent()
    assert outbox.dead.list() == []
    assert [relay.stop() for relay in kills.relays.values()] == [0, 0]
    found = place.all()
    check(found, range(load.published))
    times = Counter(int(each.value[5:-1]) for each in found)
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {seed}: {load.published:,} events in {taken:.0f} s, 0 lost, 0 out of order, "
            f"{len(found) - load.published:,} repeated; {dict(kills.done)}\n"
        )
    assert {times[number] for number in range(before, load.published)} == {1}
