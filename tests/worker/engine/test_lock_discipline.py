"""Whoever touches what the lock guards without holding it fails its test; and a place that once did."""

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import lock_check
import pytest
from contexts import context
from lock_check import KnownPartition

from partbox.db.delivery import cursors
from partbox.db.delivery.cursors import TickResult
from partbox.db.delivery.idle_check import IdleCheck
from partbox.protocol.horizon import Fence
from partbox.protocol.rows import OwnedPartition, TickPartition
from partbox.worker.engine.claims import Claims
from partbox.worker.engine.credits import Credits
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.intake import Intake
from partbox.worker.engine.outcomes import Outcomes
from partbox.worker.engine.parked_scheduler import ParkedScheduler
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.saves import Saves
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.transactions import Transactions
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.reports.load import LoadReport


@pytest.fixture
def engine() -> Engine:
    engine = Engine(2)
    engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
    engine.lock.strict = True  # type: ignore[attr-defined]
    return engine


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Accesses without the lock are meant here."""
    yield
    lock_check.violations.clear()


FORGOTTEN: dict[str, Callable[[Engine, Partition], Any]] = {
    "to touch": lambda engine, partition: engine.mark_dirty(partition),
    "to gather": lambda engine, _: engine.take_dirty(),
    "to wake": lambda engine, partition: engine.schedule_wakeup(partition, ("Key", "k")),
    "to finish": lambda _, partition: partition.finish_rows([(0, 10, b"")]),
    "to look at what blocks": lambda engine, partition: engine.park_followers(partition, [("Key", "k")]),
    "to stop": lambda _, partition: partition.drain(),
    "to forget": lambda _, partition: partition.reset(0.0),
    "to ask for a lane": lambda _, partition: partition.ensure_lane(("Key", "k")),
}


@pytest.mark.parametrize("what", FORGOTTEN)
@pytest.mark.usefixtures("forgotten")
def test_touching_guarded_state_without_the_lock_fails(engine: Engine, what: str) -> None:
    with engine.lock:
        partition = engine.partitions[5]
    with pytest.raises(AssertionError, match="without the lock"):
        FORGOTTEN[what](engine, partition)


@pytest.mark.usefixtures("forgotten")
def test_taking_the_lock_twice_fails() -> None:
    worker = context()
    with worker.engine.lock, pytest.raises(AssertionError, match="a thread that holds it"):
        LoadReport(worker).report_load()


@pytest.mark.usefixtures("forgotten")
def test_a_lock_that_another_thread_holds_does_not_count_as_held(engine: Engine) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.lock:
            held.set()
            go.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(10)
    with pytest.raises(AssertionError, match="without the lock"):
        engine.take_dirty()
    go.set()
    other.join()


def test_every_field_of_a_partition_is_guarded_unless_it_is_named_as_an_exception(engine: Engine) -> None:
    named = lock_check.READ_FREELY | lock_check.CONSTANT | lock_check.OF_THE_POLLER
    with engine.lock:
        fields = {name for name in vars(engine.partitions[5]) if not name.startswith("_")}
    assert named <= fields
    assert fields - named == {
        name for name in fields if isinstance(vars(KnownPartition).get(name), lock_check._Guarded)
    }


UNLOCKED = {  # one value that may be out of date; then what is the poller's own
    "Claims.count_partitions", "Credits.is_starved", "Saves.has_waiting_suspects", "Transactions.has_waiting",
    "Credits.set_held_up", "Credits.brakes", "Credits.note_backlog", "Credits.bytes_for_payloads",
    "Credits.note_poll_in_time", "Credits.note_timeout",
    "Intake.needs_parts", "Intake.pass_unwanted", "Intake.restart", "Intake.wants_type",
}  # fmt: skip


@pytest.mark.parametrize(
    "facade", [Claims, Credits, Intake, Outcomes, ParkedScheduler, LaneScheduler, Saves, Transactions]
)
def test_every_public_method_takes_the_lock_or_says_that_its_caller_holds_it(facade: type) -> None:
    verbs = {name: vars(facade)[name] for name in vars(facade) if not name.startswith("_")}
    verbs = {name: getattr(each, "fget", each) for name, each in verbs.items() if callable(getattr(each, "fget", each))}
    without = {f"{facade.__name__}.{name}" for name, each in verbs.items() if not _is_locked(each)}
    assert without == {name for name in UNLOCKED if name.startswith(f"{facade.__name__}.")}


def _is_locked(verb: Callable[..., Any]) -> bool:
    takes = hasattr(verb, "__wrapped__") or "with self._lock" in inspect.getsource(verb)
    return takes or "The caller holds the lock." in " ".join((verb.__doc__ or "").split())


def test_a_partition_that_is_released_during_a_tick_does_not_end_the_poller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The saver drops what it has released, between any two steps of the poller."""
    worker = context()
    engine, numbers = worker.engine, range(4)
    ownership = Ownership(worker, lambda floor: None)
    rows = [OwnedPartition(number, 1, "1:1:", 0, 0, 0, None) for number in numbers]
    engine.claims.adopt(rows, 0.0)

    def dropped() -> None:
        with engine.lock:
            if engine.partitions:
                engine.drop_partition(next(iter(engine.partitions.values())))

    class Dropping(type(engine.lock)):  # type: ignore[misc]
        """The saver drops one each time that the poller has let go of the lock."""

        def __exit__(self, *why: Any) -> None:
            super().__exit__(*why)
            if not self.quiet:
                self.quiet = True
                dropped()
                self.quiet = False

    lock = Dropping()
    lock.quiet, lock.strict = False, True
    engine.lock = engine.claims._lock = engine.partitions.lock = lock  # type: ignore[attr-defined]
    for partition in engine.partitions.values():
        partition.__dict__["_lock"] = lock
    seen = [TickPartition(*_seen(number)) for number in numbers]
    look = IdleCheck(Fence(1, 0), has_ended=False, flag_up_for=0.0)
    monkeypatch.setattr(cursors, "run_tick", lambda *arguments: TickResult(look, 1, seen, {}, {}))
    monkeypatch.setattr(cursors, "take_up_partitions", lambda *arguments: [])  # what was dropped is not mine any more
    monkeypatch.setattr("partbox.db.delivery.parked.list_blocking", lambda *arguments: [])
    monkeypatch.setattr("partbox.db.delivery.parked.count_loose_rows", lambda *arguments: {})
    monkeypatch.setattr("partbox.db.delivery.parked.list_ahead", lambda *arguments: [])
    monkeypatch.setattr("partbox.db.delivery.parked.list_spills", lambda *arguments: [])
    ownership.instance_id = worker.slot.instance = uuid4()
    for _ in range(3):
        ownership.tick(None)  # type: ignore[arg-type]
    assert not engine.partitions


def _seen(number: int) -> list[Any]:
    values = {
        "partition": number,
        "is_owned": True,
        "is_assigned": True,
        "is_free": False,
        "epoch": 1,
        "parked_version": 1,
    }
    return [values.get(name) for name in TickPartition._fields]
