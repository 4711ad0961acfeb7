"""A node whose database does not answer, or whose machine gives it no more processes."""

import threading
import time
from socket import socketpair

import pytest
from waiting import eventually

from partbox import Outbox
from partbox.errors import PartboxError
from partbox.observe.health.health import list_fatal_problems
from partbox.protocol.lease import ChildSigns, HeartbeatStreak
from partbox.supervisor import loop, worker_pool
from partbox.supervisor.foreground import run_supervisors
from partbox.supervisor.membership import RegisteredProcess
from partbox.supervisor.supervisor import Supervisor
from partbox.worker.slot import Slot


class Process:
    """Of a node, but none: it ends when it is killed."""

    is_starting = False

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.meter = self.instance = self.exit_code = None
        self.was_killed = self.is_ready = self.is_unborn = False
        self.pid, self.started_at, self.handler_timeout = 4711, time.monotonic(), 1.0
        self.sentinel, self._other_end = socketpair()
        self.registered_process = RegisteredProcess(Slot.create_local(), self.pid)

    def kill(self) -> None:
        self.was_killed = True

    def drain(self) -> None:
        self.registered_process.is_draining = True

    def update_signs(self) -> ChildSigns:
        return ChildSigns(0.0, None, False)

    def close(self) -> None:
        self.sentinel.close()
        self._other_end.close()


class Frozen:
    """A membership whose database is there and says nothing, until the gate opens."""

    last_heartbeat_at, heartbeat_streak = None, HeartbeatStreak(15.0)

    def __init__(self) -> None:
        self.asked, self.gate = threading.Event(), threading.Event()

    def open(self) -> None:
        """It was still well."""

    close = open

    def try_tick(self, *_) -> float:
        self.asked.set()
        self.gate.wait(120)
        return 1.0

    bury = try_tick


@pytest.fixture
def frozen():
    frozen = Frozen()
    yield frozen
    frozen.gate.set()


@pytest.fixture
def node(frozen) -> Supervisor:
    outbox = Outbox("postgresql://nowhere", purge_interval="1h")
    outbox.register(print, "Placed")
    made = outbox.supervisor(processes=3)
    made._membership = made._loop._membership = frozen
    made._workers._starts_at_once = 3
    return made


def asking(node: Supervisor, frozen: Frozen, *what) -> threading.Thread:
    """The loop, at a moment when it asks the database and has done so for very long."""
    thread = threading.Thread(target=what[0], args=what[1:])
    thread.start()
    assert frozen.asked.wait(120)
    node._loop.heartbeat.stepped_at = time.monotonic() - 1_000
    return thread


def of_loop(node: Supervisor) -> list[str]:
    return [said for said in list_fatal_problems(node.read_vitals()) if "loop" in said]


def test_a_loop_that_waits_for_the_database_is_not_stuck(node, frozen, monkeypatch):
    monkeypatch.setattr(Supervisor, "running", True)
    thread = asking(node, frozen, node._loop._tick, 0.0)
    assert of_loop(node) == []
    frozen.gate.set()
    thread.join(120)
    assert of_loop(node) == [], "it has just turned"
    node._loop.heartbeat.stepped_at -= 1_000
    assert of_loop(node) != []


def test_a_loop_that_waits_while_it_buries_is_not_stuck_either(node, frozen, monkeypatch):
    monkeypatch.setattr(Supervisor, "running", True)
    process = Process()
    process.instance, process.exit_code, process.registered_process.is_draining = "its id", 0, True
    node._workers._handles[0] = process
    process.close()
    thread = asking(node, frozen, node._loop._reap)
    assert of_loop(node) == []
    frozen.gate.set()
    thread.join(120)


def test_a_node_that_is_killed_does_not_wait_for_the_database(node, frozen, monkeypatch):
    monkeypatch.setattr(loop, "KILL_GRACE", 0.05)
    monkeypatch.setattr(worker_pool, "WorkerHandle", lambda *_: Process(_[-1]))
    ended = []
    running = threading.Thread(target=lambda: ended.append(run_supervisors([node])))
    running.start()
    assert frozen.asked.wait(120)
    node.stop()
    processes = node.children
    assert len(processes) == 3
    assert not any(process.was_killed for process in processes)
    node.kill()
    assert all(process.was_killed for process in processes)
    running.join(120)
    assert (ended, node.running) == ([0], True)
    for process in processes:
        process.exit_code = -9
    frozen.gate.set()
    node.join(120)
    assert not node.running


def test_processes_that_cannot_be_started_are_tried_again_and_the_others_live(node, monkeypatch, caplog):
    answers = iter([None, OSError(24, "Too many open files"), OSError(11, "no more processes"), None, None])

    def child(*given):
        if error := next(answers):
            raise error
        return Process(given[-1])

    monkeypatch.setattr(worker_pool, "WorkerHandle", child)
    now = 100.0
    for living in (1, 1, 3):
        node._workers.adjust_count(now)
        assert len(node.children) == living
        node._workers.adjust_count(now)  # no sooner than that
        assert len(node.children) == living
        now = node._workers._spawn_at
    assert [record.event for record in caplog.records] == ["partbox.not_spawned"] * 2
    assert "Too many open files" in caplog.text
    assert not node._workers.backoff.count_recent(now)
    for process in node.children:
        process.close()


def test_no_more_processes_start_at_once_than_there_are_processors(node, monkeypatch):
    monkeypatch.setattr(worker_pool, "WorkerHandle", lambda *given: Process(given[-1]))
    monkeypatch.setattr(Process, "is_starting", True)
    monkeypatch.setattr(node._workers, "_starts_at_once", 2)
    for _ in range(2):
        node._workers.adjust_count(time.monotonic())
        assert len(node.children) == 2, "the third waits for one of them"
    later = time.monotonic() + worker_pool.STARTUP + 1
    node._workers.adjust_count(later)
    assert len(node.children) == 3, "but not for those that cannot start"
    for process in node.children:
        process.close()


@pytest.mark.parametrize(
    ("failure", "said"), [(PartboxError("its log says why"), "its log says why"), (KeyError("vault"), "KeyError")]
)
def test_the_text_of_an_applications_error_appears_in_the_log_only(node, failure, said):
    node._loop.failure = failure
    assert node.read_vitals().failure == said


def test_a_node_that_ends_closes_its_own_meters():
    ended = []
    node = Outbox("postgresql://nowhere").supervisor(processes=1, metrics=True)
    node.meters.on_end = lambda: ended.append(1)
    node._close()
    assert ended == [1]


def test_the_waiting_flag_of_the_loop_is_cleared_when_a_tick_fails(node, frozen):
    """The flag of the loop is taken back, whatever the database says."""
    frozen.try_tick = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        node._loop._tick(0.0)
    assert not node._loop.heartbeat.is_waiting
    eventually(lambda: node.is_gone)
