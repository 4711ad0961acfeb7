"""The page of a backlog is handed over while the server makes the next one."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from process import Shape
from psycopg import OperationalError
from world import World

from partbox.protocol import sweep
from partbox.protocol.cursor import CutPage, ReadMode
from partbox.protocol.horizon import Page
from partbox.worker.poller import full_poll

SHARE = 40
NUMBERS = range(4)
prefetch = full_poll.prefetch  # before the model takes its place


class Reading:
    """A process whose four partitions have more than a window each; it has read two shares of each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = world.join(Shape(4, page=4 * SHARE, window=1_000, window_bytes=1 << 26, max_parked=1_000))
        world.assign(NUMBERS, self.process)
        for _ in range(8 * SHARE):  # in turn, so every page brings some of each
            for number in NUMBERS:
                world.publish(0, number, None)
        world.end(0, commit=True)
        self.engine, self.reader = self.process.engine, self.process.poller.reader
        self.polls = 0
        for _ in range(2):  # the first page of each, alone
            world.clock.now += 0.06
            world.go_on(self.process, "poller")
        self.on(goes_on=False)  # the first that they share; the next can be a sweep
        self._poll = world.database.poll
        self.failing = 0
        world.database.poll = self._counted  # type: ignore[method-assign]
        assert self.read == 8 * SHARE == len(self.handed)

    def _counted(self, *of: Any, **more: Any) -> Any:
        self.polls += 1
        if self.polls == self.failing:
            raise OperationalError("the server is gone")
        return self._poll(*of, **more)

    def on(self, *, goes_on: bool = True) -> None:
        self.reader.read(self.world.connection(self.process), lambda: goes_on)  # type: ignore[arg-type]

    @property
    def read(self) -> int:
        return sum(self.engine.partitions[number].progress.read_count for number in NUMBERS)

    @property
    def handed(self) -> list[int]:
        """The ids of what waits for runners."""
        with self.engine.lock:
            lanes = [lane for partition in self.engine.partitions.values() for lane in partition.lanes.values()]
            return [event.id for lane in lanes for event in lane.queue]


@pytest.fixture
def reading(stage: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    monkeypatch.setattr(sweep, "MIN_PARTITIONS", 2)
    made = Reading(World(*stage, partitions=len(NUMBERS)))
    yield made
    made.process.kill()


def test_one_step_reads_page_after_page_until_windows_are_full(reading: Reading) -> None:
    reading.on()
    assert reading.polls > 1
    assert len(reading.handed) == len(set(reading.handed)) == reading.read >= 12 * SHARE


def test_a_step_reads_one_page_only_while_other_work_waits(reading: Reading) -> None:
    reading.on(goes_on=False)
    assert reading.polls == 1


def test_reading_ahead_goes_on_after_a_save_that_makes_room_and_ends_when_the_poller_is_called(
    reading: Reading,
) -> None:
    poller = reading.process.poller
    poller._tick_at = math.inf
    poller._wakeup.set()
    assert poller._may_continue()
    poller.wake()
    assert not poller._may_continue()


def test_a_page_is_handed_over_though_the_next_one_fails(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_poll, "prefetch", prefetch)
    reading.failing = 2
    with pytest.raises(OperationalError, match="the server is gone"):
        reading.on()
    assert len(reading.handed) == reading.read > 8 * SHARE


def test_a_partition_lost_while_the_next_page_is_made_is_handed_no_events(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = reading.engine.partitions[0]

    def losing(call: Callable[[], Any]) -> AbstractContextManager[Any]:
        if not lost.is_lost:  # once: to lose it again would clear its lanes again
            reading.process.poller.ownership.drop_tenures([lost.tenure])
        return prefetch(call)

    monkeypatch.setattr(full_poll, "prefetch", losing)
    reading.on()
    assert len(reading.handed) > 8 * SHARE
    with reading.engine.lock:
        assert not any(lane.queue for lane in lost.lanes.values())


def test_records_read_of_a_draining_partition_are_handed_over_before_it_may_be_released(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, kept = reading.engine.partitions[0], list[Any]()
    monkeypatch.setattr(reading.reader._intake, "hand_over", lambda arrived, _: kept.extend(arrived))
    with reading.engine.lock:
        partition.drain()
        page = Page("1:1:", 0)
        partition.cursor.enter_mode(ReadMode.CUT, page, CutPage(page, 0))  # its last piece comes
    reading.reader.discard_groups()
    reading.on(goes_on=False)
    assert partition.cursor.cut_page is None
    assert partition not in [each.partition for each in kept]


def test_a_prefetch_gives_its_result_or_its_error_after_the_block() -> None:
    with prefetch(lambda: 7) as call:
        pass
    assert call.result() == 7
    with prefetch(lambda: 1 // 0) as call:
        pass
    with pytest.raises(ZeroDivisionError):
        call.result()


def test_a_prefetch_has_ended_when_its_block_ends_even_by_an_error() -> None:
    ended: list[int] = []
    with pytest.raises(KeyError), prefetch(lambda: ended.append(1)):
        raise KeyError
    assert ended == [1]
