"""Events that kill their process, and innocents that ran beside them."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from memory_group import memory_group
from waiting import eventually
from ward import Ward


@pytest.fixture
def ward(cluster):
    return Ward(cluster)


@pytest.mark.thorough
@pytest.mark.parametrize(("rounds", "processes"), [(1, 2), pytest.param(10, 3, marks=pytest.mark.soak)])
def test_poison_ends_dead_and_everything_else_is_delivered_in_order(ward, rounds, processes):
    """Many events of 50 aggregates, one that kills its process and one that never returns among them."""
    ward.publish(rounds)
    kill = ward.publish_poison("Kill", ward.names[0])
    hang = ward.publish_poison("Hang", ward.names[1])
    ward.publish(rounds)
    node = ward.node(processes=processes, handler_timeout=1)
    ward.settled()

    assert ward.dead() == {
        kill: (3, "the process died 3 times handling the event"),
        hang: (3, "TimeoutError: the handler ran longer than its timeout of 1 s"),
    }
    assert ward.wrong() == {}
    assert len(ward.cluster.ledger.published()) == 2 * 50 * rounds + 2
    for event in ward.poison:  # who takes it first cannot know, and is not counted; nor is who dies beside it
        attempts = [one.attempt for one in ward.deliveries(event)]
        assert attempts == sorted(attempts)
        assert set(attempts) == {1, 2, 3}
    ward.cluster.balanced(processes)
    pids = set(ward.cluster.owners.instances("node").values())
    assert len(pids) == processes
    assert all(psutil.pid_exists(pid) for pid in pids)
    assert node.stop() == 0
    assert ward.suspects() == 0


@pytest.mark.thorough
def test_innocent_events_beside_poison_are_not_dead_lettered_even_with_two_attempts(ward):
    """One process of four handlers: while the poison runs, three others of its partition or another do."""
    ward.names = ward.names[:12]
    ward.publish(1, seconds=0.2)
    kill = ward.publish_poison("Kill", ward.names[5])
    ward.publish(2, seconds=0.2)
    node = ward.node(processes=1, max_attempts=2)
    ward.settled()

    assert ward.dead() == {kill: (2, "the process died 2 times handling the event")}
    assert ward.wrong() == {}
    beside = {
        one.event
        for one in ward.cluster.journal.deliveries()
        if one.event != kill and any(one.pid == death.pid and one.end is None for death in ward.deliveries(kill))
    }
    assert beside
    assert node.stop() == 0


@pytest.mark.thorough
def test_an_event_whose_handler_takes_too_much_memory_ends_dead_and_no_other_does(ward):
    """The kernel kills its process, each time that it runs: the largest one in a control group of the whole node.

    While that one ends the kernel may kill another, too: a worker process. If none is left at that moment it takes the
    supervisor, which a service manager would start again; then there is nothing to be seen here.
    """

    def not_the_supervisor() -> None:
        if node.process.poll() == -signal.SIGKILL:
            pytest.skip("the kernel killed the supervisor, as no other process was left in its group")

    with memory_group(300) as group:
        node = ward.node(processes=2)
        ward.cluster.balanced(2)
        for pid in node.family():
            group.add(pid)
        ward.publish(1)
        eat = ward.publish_poison("Eat", ward.names[0])
        ward.publish(2)
        ward.settled(meanwhile=not_the_supervisor)
        assert ward.dead() == {eat: (3, "the process died 3 times handling the event")}
        assert ward.wrong() == {}
        assert len(ward.deliveries(eat)) <= group.kills()
        ward.cluster.balanced(2)
        assert node.stop() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="oom_score_adj is Linux's")
def test_when_memory_runs_out_the_kernel_kills_a_worker_process_sooner_than_the_supervisor(ward):
    node = ward.node(processes=2)
    ward.cluster.balanced(2)
    supervisor, *workers = [
        int(Path(f"/proc/{pid}/oom_score_adj").read_text())
        for pid in (node.pid, *ward.cluster.owners.instances("node").values())
    ]
    assert workers == [min(supervisor + 200, 1_000)] * 2


ALONE = [pytest.param([name], 10, 50, 100, marks=pytest.mark.soak, id=name) for name in ("Step", "Listed", "Effect")]


@pytest.mark.thorough
@pytest.mark.parametrize(("event_types", "rounds", "aggregates", "lone"), [(["Step", "Effect"], 1, 30, 10), *ALONE])
def test_a_process_killed_under_a_backlog_of_harmless_events_leaves_no_trace(
    ward, event_types, rounds, aggregates, lone
):
    """Three times so many rounds of events of these aggregates, and so many events without one, of each type."""
    ward.names = ward.names[:aggregates]
    ward.conn.execute("create table effect (event uuid primary key)")
    node = ward.node(processes=2)  # three attempts: the first death charges nobody, so three deaths exhaust nobody
    keyless = []
    for _ in range(3):
        ward.cluster.balanced(2)
        reached = len(ward.cluster.journal.ended())
        for event_type in event_types:
            ward.publish(rounds, event_type, seconds=0.02)
            keyless += ward.publish_keyless(lone, event_type, seconds=0.02)
        eventually(lambda before=reached: len(ward.cluster.journal.ended()) > before + lone)
        victim = min(ward.cluster.owners.instances("node").values())
        os.kill(victim, signal.SIGKILL)
        eventually(lambda dead=victim: dead not in ward.cluster.owners.instances("node").values())
    ward.settled()

    assert ward.wrong() == {}
    assert set(keyless) <= ward.cluster.journal.ended()
    assert ward.parked() == []
    ward.cluster.balanced(2)
    assert node.stop() == 0
    assert ward.suspects() == 0
    effects = 3 * (rounds * aggregates + lone) if "Effect" in event_types else 0
    assert ward.conn.execute("select count(*) from effect").fetchone() == (effects,)
