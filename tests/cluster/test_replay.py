"""Dead records are replayed while events of the same aggregates flow and processes die.

What holds of an aggregate whose dead records are replayed: they are delivered in the order of the log, all of them
before any other event of it is started, but for those that were on their way when the replay committed: until the owner
has seen it, at its next tick. So once the first of them starts, no other starts until the last of them has ended.
"""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
import pytest
from ledger import publishing
from node import PATIENCE
from waiting import eventually

from partbox.protocol.hashing import partition_of
from partbox_lab.chaos.journal import HandlerCall, now
from partbox_lab.chaos.oracle import LoggedEvent, judge

AGGREGATES = 100
ROUNDS = 5
sizes = pytest.mark.parametrize("each", [15, pytest.param(50, marks=pytest.mark.soak)])
"""Events of each aggregate that die: a replay of all has three transactions of 500 records at least."""
SESSIONS = "select 1 from pg_stat_activity where application_name = 'partbox dead' and datname = current_database()"
SEEN = 3.0
"""Seconds after which an owner has seen a replay, on a loaded machine: a tick is 0.25 s."""


@dataclass
class Replayed:
    """The deliveries of the mortal and of the other events of each aggregate."""

    cluster: object
    mortal: set[str]
    replayed_by: dict[str, float] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)

    def note(self, *_: int) -> None:
        """Note which aggregates are replayed by now."""
        left = self.cluster.owners.conn.execute("select distinct aggregate_id from partbox.parked where state = 'dead'")
        dead = {name for (name,) in left}
        for name in self.cluster.ledger.names:
            if name not in dead:
                self.replayed_by.setdefault(name, now())

    def cured(self) -> int:
        """The number of them that have been handled."""
        return len(self.mortal & self.cluster.journal.ended())

    def check(self) -> None:
        published, deliveries = self.cluster.ledger.published(), self.cluster.journal.deliveries()
        whole = judge(published, deliveries)
        assert (whole.lost, whole.unknown, whole.overlaps, whole.stale) == ([], [], [], [])
        for some in (self._is_mortal, lambda each: not self._is_mortal(each)):
            verdict = judge(filter(some, published), filter(some, deliveries))
            assert verdict.wrong() == {}, (verdict.backwards[:3], verdict.too_early[:3], self.killed)
        self._check_that_nothing_came_between(deliveries)
        self._check_repeats(deliveries)

    def _is_mortal(self, each: LoggedEvent | HandlerCall) -> bool:
        return each.event in self.mortal

    def _check_that_nothing_came_between(self, deliveries: list[HandlerCall]) -> None:
        histories: defaultdict[str, list[HandlerCall]] = defaultdict(list)
        for delivery in deliveries:
            histories[delivery.aggregate].append(delivery)
        between, late = [], []
        for name, replayed_by in self.replayed_by.items():
            mortal = [each for each in histories[name] if self._is_mortal(each)]
            ends: dict[str, float] = {}
            for each in mortal:
                if each.end is not None:
                    ends[each.event] = min(each.end, ends.get(each.event, each.end))
            first, last = min(each.start for each in mortal), max(ends.values())
            others = [each for each in histories[name] if not self._is_mortal(each) and each.start < last]
            between += [each for each in others if each.start > first]
            late += [each for each in others if each.start > replayed_by + SEEN]
        assert not between, f"{len(between)} events between replayed ones, such as {between[0]}"
        assert not late, f"{len(late)} events before replayed ones, long after the replay, such as {late[0]}"

    def _check_repeats(self, deliveries: list[HandlerCall]) -> None:
        """Check that events started twice were first started by a process that was killed."""
        first: dict[str, HandlerCall] = {}
        for delivery in deliveries:
            before = first.setdefault(delivery.event, delivery)
            assert before is delivery or before.pid in self.killed, (before, delivery)


@pytest.fixture
def bury(cluster) -> Callable[..., Replayed]:
    """Lets so many events of each of 100 aggregates die, among others of these that do not, and finds the cure."""

    def bury(each: int) -> Replayed:
        cluster.ledger.names = cluster.ledger.names[:AGGREGATES]
        cure, mortal = cluster.gate("cure"), []
        for _ in range(ROUNDS):
            with psycopg.connect(cluster.dsn) as conn:
                given = {"event_type": "Mortal", "cure": str(cure), "seconds": 0.002}
                mortal += cluster.ledger.publish(conn, cluster.ledger.names, each // ROUNDS, **given)
        eventually(lambda: cluster.ledger.outbox.dead.count() == each * AGGREGATES, PATIENCE, 0.1)
        cure.touch()
        return Replayed(cluster, set(mortal))

    return bury


@pytest.mark.thorough
@sizes
def test_workers_killed_in_the_middle_of_a_full_replay_lose_nothing_and_keep_the_order(cluster, bury, each):
    dead = each * AGGREGATES
    nodes = [cluster.node("one", processes=2), cluster.node("two", processes=1)]
    cluster.balanced(3)
    with publishing(cluster.ledger, threads=2, seconds=0.001):
        replayed = bury(each)

        def kill(done: int, total: int) -> None:
            replayed.note()
            if done >= dead * 0.3 and not replayed.killed:
                eventually(lambda: replayed.cured() > dead * 0.06, PATIENCE, 0.02)
                replayed.killed |= {min(cluster.owners.instances("one").values())}
                cluster.kill(*replayed.killed)
            elif done >= dead * 0.6 and len(replayed.killed) == 1:
                eventually(lambda: replayed.cured() > dead * 0.34, PATIENCE, 0.02)
                replayed.killed |= set(cluster.owners.instances().values())
                for node in nodes:
                    node.send_to_all(signal.SIGKILL)

        assert cluster.ledger.outbox.dead.replay_all(progress=kill) == dead
        assert len(replayed.killed) >= 3
        cluster.node("three", processes=2)
        cluster.balanced(2)
        eventually(lambda: replayed.cured() == dead, 120, 0.1)
    cluster.delivered(120)
    replayed.check()


@pytest.mark.thorough
@sizes
def test_a_killed_replay_has_replayed_whole_aggregates_and_a_second_one_does_the_rest(cluster, bury, each):
    cluster.node("one", processes=2)
    cluster.balanced(2)
    with publishing(cluster.ledger, threads=1, seconds=0.001):
        replayed = bury(each)
        look = cluster.owners.conn.execute
        with psycopg.connect(cluster.dsn) as saving, replaying(cluster.dsn) as command:
            _lock_a_partition_of_the_middle(saving)
            command.stdin.close()
            waits = f"{SESSIONS} and wait_event_type = 'Lock'"
            eventually(lambda: look(waits).fetchone(), PATIENCE, 0.005)
            command.send_signal(signal.SIGKILL)
        # The server ends the chunk it was at, for it does not see that nobody waits for it any more.
        eventually(lambda: not look(SESSIONS).fetchone(), PATIENCE, 0.01)
        left = dict(
            look("select aggregate_id, count(*) from partbox.parked where state = 'dead' group by 1").fetchall()
        )
        replayed.note()
        assert set(left.values()) == {each}
        assert 0 < len(left) < AGGREGATES
        assert cluster.ledger.outbox.dead.replay_all(progress=replayed.note) == len(left) * each
        eventually(lambda: replayed.cured() == each * AGGREGATES, 120, 0.1)
    cluster.delivered(120)
    replayed.check()


@pytest.mark.thorough
def test_replayed_events_come_before_events_that_their_owner_has_read_but_not_started(cluster):
    cluster.node("node")
    cluster.balanced(1)
    names = [name for name in cluster.ledger.names if partition_of(name) == partition_of(cluster.ledger.names[0])]
    key, other = names[:2]
    cure, gate = cluster.gate("cure"), cluster.gate()
    with psycopg.connect(cluster.dsn) as conn:
        mortal = cluster.ledger.publish(conn, [key, other], 3, event_type="Mortal", cure=str(cure))
    eventually(lambda: cluster.ledger.outbox.dead.count() == 6, PATIENCE, 0.05)
    cure.touch()
    running = cluster.ledger.publish_now([key], gate=str(gate))
    waiting = cluster.ledger.publish_now([key], burst=4)
    behind = cluster.ledger.publish_now([other])
    cluster.running(running)
    eventually(lambda: set(behind) <= cluster.journal.ended(), PATIENCE, 0.02)  # so what waits is read, too
    assert cluster.ledger.outbox.dead.replay_all() == 6
    cured = {one.event for one in cluster.ledger.published() if one.aggregate == other} & {*mortal}
    eventually(lambda: cured <= cluster.journal.ended(), PATIENCE, 0.02)  # so their owner has seen the replay
    gate.touch()
    cluster.delivered()
    of_key = [each.event for each in cluster.journal.deliveries() if each.aggregate == key]
    assert of_key == [*running, *[event for event in mortal if event in of_key], *waiting]


def replaying(dsn: str) -> subprocess.Popen[bytes]:
    """`partbox dead replay --all`, once its standard input is closed."""
    program = "import sys; sys.stdin.read(); from partbox.cli import main; main()"
    command = [sys.executable, "-c", program, "dead", "replay", "--all", "--yes"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"PARTBOX_DSN": dsn})


def _lock_a_partition_of_the_middle(conn: psycopg.Connection) -> None:
    """Keep its own place in the partition of an aggregate that is neither replayed early nor late."""
    ((partition,),) = conn.execute(
        "select partition from partbox.parked where state = 'dead' group by partition"
        " having count(distinct aggregate_id) = 1 order by min(record_id) limit 1 offset 30"
    ).fetchall()
    conn.execute("select from partbox.partition where partition = %s for no key update", [partition])
