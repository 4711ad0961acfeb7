"""Who waits for a lane, and who is called or hired for it: no wake-up is missed, and no place lost."""

from collections import Counter
from random import Random

import pytest

from partbox.protocol.rows import OwnedPartition
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.scheduler import NoLane


class Crew:
    """Runners without threads: those that wait take calls, which are kept until somebody does."""

    def __init__(self, concurrency: int) -> None:
        self.engine = Engine(concurrency)
        self.scheduler = self.engine.scheduler
        self.engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
        self.seen: Counter[str] = Counter()
        self.running: list[list[Lane]] = []  # the lanes in hand of each runner that has some
        self.elsewhere: list[list[Lane]] = []  # those that run in the event loop
        self.awake = self.waiting = self.calls = self.keys = 0
        self.engine.wakes.wake_runner, self.engine.wakes.hire_runner = self._call, self._hire
        self.engine.wakes.report_busy = lambda busy: self.seen.update([f"busy {busy}"])

    def _call(self) -> None:
        self.calls += 1

    def _hire(self) -> None:
        self.awake += 1

    def publish(self) -> None:
        with self.engine.lock:
            self.keys += 1
            lane = self.engine.partitions[5].ensure_lane(("Key", str(self.keys)))
            self.scheduler.make_ready([lane])

    def ask(self, ended: list[Lane], *, trusted: bool = True) -> NoLane | None:
        """One that is awake asks; what came of it if it has no lanes now."""
        self.awake -= 1
        lanes = self.scheduler.take_next_lanes(ended, 0.0, trusted=trusted, waits=True)
        if isinstance(lanes, list):
            self.running.append(lanes)
            return None
        if lanes in (NoLane.IDLE, NoLane.FULL):
            self.waiting += 1
        elif lanes is NoLane.UNTRUSTED:
            self.awake += 1
        return lanes

    def finish(self) -> None:
        """One that runs has done, and asks again."""
        self.awake += 1
        self.ask(self.running.pop(0))

    def hand_over(self) -> None:
        """One that runs gives its lane to the event loop, and asks again."""
        self.awake += 1
        self.elsewhere.append(self.running.pop(0))
        self.ask([])

    def end_elsewhere(self) -> None:
        self.scheduler.end_lanes(self.elsewhere.pop(0))

    def answer(self) -> None:
        """One that waits takes a call."""
        self.calls, self.waiting, self.awake = self.calls - 1, self.waiting - 1, self.awake + 1

    @property
    def unasked(self) -> bool:
        """A lane is ready, a place is free, and nobody is going to look."""
        free = len(self.running) + len(self.elsewhere) < self.scheduler._concurrency
        return bool(self.scheduler._ready_queue) and free and not self.awake and not self.calls


@pytest.mark.parametrize("concurrency", [1, 2, 4])
@pytest.mark.parametrize("seed", range(10))
def test_some_runner_always_looks_for_a_ready_lane_in_any_order_of_steps(concurrency: int, seed: int) -> None:
    crew, random = Crew(concurrency), Random(seed)
    for _ in range(300):
        steps = [crew.publish] * (crew.keys < 100)
        steps += [lambda: crew.ask([])] * bool(crew.awake)
        steps += [crew.finish, crew.hand_over] * bool(crew.running)
        steps += [crew.end_elsewhere] * bool(crew.elsewhere)
        steps += [crew.answer] * bool(crew.calls and crew.waiting)
        if not steps:
            break
        random.choice(steps)()
        assert not crew.unasked
        assert crew.calls <= crew.waiting, "a call for nobody"
        assert crew.awake + crew.waiting + len(crew.running) <= concurrency
        assert len(crew.running) + len(crew.elsewhere) <= concurrency


def test_two_slots_that_get_free_at_once_bring_two_runners() -> None:
    """One was hired: it has given both lanes to the event loop, and waits."""
    crew = Crew(2)
    crew.publish()
    for _ in range(2):
        assert crew.ask([]) is None
        crew.hand_over()
        crew.publish()
        crew.answer()
    assert crew.ask([]) is NoLane.FULL
    crew.publish()
    crew.answer()
    assert crew.ask([]) is NoLane.FULL
    assert (len(crew.elsewhere), len(crew.scheduler._ready_queue), crew.waiting) == (2, 2, 1)
    crew.end_elsewhere()
    crew.end_elsewhere()
    assert (crew.calls, crew.awake) == (1, 1)


def test_a_stop_calls_every_waiting_runner_and_no_lane_begins_any_more() -> None:
    crew = Crew(2)
    crew.publish()
    crew.publish()
    assert (crew.awake, crew.ask([]), crew.ask([])) == (2, None, None)
    crew.finish()
    crew.finish()
    assert (crew.waiting, crew.calls) == (2, 0)
    crew.scheduler.stop()
    assert crew.calls == 2
    crew.answer()
    crew.publish()
    assert crew.ask([]) is NoLane.STOPPED


def test_an_untrusted_runner_is_not_counted_as_idle() -> None:
    crew = Crew(1)
    crew.publish()
    assert crew.ask([], trusted=False) is NoLane.UNTRUSTED
    crew.publish()
    assert crew.calls == 0, "it asks by itself"
    assert crew.ask([]) is None


def test_the_supervisor_hears_when_the_first_handler_begins_and_the_last_ends() -> None:
    crew = Crew(2)
    crew.publish()
    crew.publish()
    crew.ask([])
    crew.ask([])
    crew.finish()
    assert crew.seen == {"busy True": 1}
    crew.finish()
    assert crew.seen == {"busy True": 1, "busy False": 1}
