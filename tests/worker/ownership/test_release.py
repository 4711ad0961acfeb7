"""Before a handler starts, and before a process ends that has given one up."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from partbox.platform import boottime
from partbox.protocol.rows import OwnedPartition
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.saves import gather_save, note_committed
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.timeouts import HandlerTimeouts
from partbox.worker.slot import Slot


def test_a_process_with_a_handler_that_was_given_up_ends_when_the_save_that_says_so_is_committed() -> None:
    engine, nothing_runs = Engine(), SimpleNamespace(running=list)
    engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
    partition = engine.partitions[5]
    timeouts = HandlerTimeouts(engine, nothing_runs, nothing_runs, nothing_runs, is_replaceable=True)  # type: ignore[arg-type]
    timeouts.abandoned_partitions.add(partition)
    assert timeouts.are_all_saved()
    with engine.lock:
        batch = gather_save(partition, 0.0)
    assert not timeouts.are_all_saved()
    with engine.lock:
        note_committed(engine, [batch], 0.0)
    assert timeouts.are_all_saved()


@pytest.mark.parametrize(("boot", "wall", "trusted"), [(60, 60, True), (-1, 60, False), (60, -1, False)])
def test_trust_ends_by_either_clock(boot: float, wall: float, trusted: bool) -> None:
    slot = Slot.create_local()
    slot.trust_until(boottime() + boot, time.time() + wall)
    assert slot.is_trusted() is trusted


def test_no_handler_starts_without_trust() -> None:
    slot, engine = Slot.create_local(), Engine()
    engine.version = slot.version
    worker: Any = SimpleNamespace(_slot=slot, _engine=engine, _trusted_at=0.0)
    slot.trust_until(boottime() - 1, time.time() - 1)
    assert not LaneRunner.may_start(worker)
    slot.trust_until(boottime() + 60, time.time() + 60)
    assert LaneRunner.may_start(worker)
