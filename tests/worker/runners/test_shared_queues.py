"""Queues that a runner takes from without the lock, while others with the lock hold, bring and forget events."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hand_moved import FAR, KEY, HandMoved
from hypothesis import given, settings
from hypothesis import strategies as st
from run_size import examples

from partbox.events import DeliveredEvent
from partbox.handlers import Handlers
from partbox.protocol.progress import Page
from partbox.protocol.retry import Fixed
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.runs import STUCK


def moved(handler: Callable[[DeliveredEvent], None], *, lone: bool) -> HandMoved:
    handlers = Handlers()
    handlers.on("Counted", retry=Fixed(0))(handler)
    return HandMoved(handlers, lone=lone)


def recorded(*, lone: bool) -> tuple[HandMoved, list[int]]:
    seen: list[int] = []
    return moved(lambda event: seen.append(event.id), lone=lone), seen


@pytest.fixture(params=[False, True], ids=["lanes", "a line"], scope="module")
def lone(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def taken_meanwhile(lane: Lane, seen: list[int]) -> None:
    """Let the runner take the next event at the worst moment: as four are left in the queue."""

    class Taken(type(lane.queue)):  # type: ignore[misc]
        def pop(self) -> Any:
            if len(self) == 4:
                seen.append(lane.event(super().popleft()).id)
            return super().pop()

        def popleft(self) -> Any:
            if len(self) == 4:
                seen.append(lane.event(super().popleft()).id)
            return super().popleft()

    lane.queue = Taken(lane.queue)
    lane.queue.meanwhile = lambda: None


def test_what_is_held_while_a_runner_takes_the_next_are_the_last_ones() -> None:
    rig, seen = recorded(lone=False)
    rig.read(*range(1, 7))
    held: list[int] = []
    hold = rig.partition.parked.hold

    def kept(event: DeliveredEvent) -> None:
        held.append(event.id)
        hold(event)

    taken_meanwhile(rig.lane, seen)
    rig.partition.parked.hold = kept  # type: ignore[method-assign]
    with rig.engine.lock:
        rig.lane.hold_rest()
    assert (seen, held) == ([1], [2, 3, 4, 5, 6])


def test_what_is_sorted_while_a_runner_takes_the_next_are_the_last_ones() -> None:
    rig, seen = recorded(lone=True)
    rig.read(*range(1, 7))
    taken_meanwhile(rig.lane, seen)
    with rig.engine.lock:
        sorted_out = rig.partition.lanes[KEY]
    assert (seen, [each.id for each in sorted_out.queue]) == ([1], [2, 3, 4, 5, 6])


def test_a_replay_between_two_events_of_a_busy_aggregate_reorders_none(lone: bool) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(*range(10, 15))
    rig.meanwhile = [lambda: None, lambda: rig.reload(4)]
    rig.go_on()
    assert sorted(seen) == [4, 10, 11, 12, 13, 14]
    assert [id for id in seen if id != 4] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("behind", [(11, 12), ()])
def test_an_event_that_is_put_back_waits_for_what_was_replayed_meanwhile(lone: bool, behind: tuple[int, ...]) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(10, *behind)
    lane = rig.lane
    with rig.engine.lock:
        rig.engine.runs.begin(lane, time.monotonic())
    event = lane.event(lane.queue.popleft())
    rig.reload(4)
    rig.engine.outcomes.put_back(lane, event)
    rig.engine.runs._ready.fresh.clear()
    rig.engine.runs.end([lane])
    rig.go_on()
    assert seen == [4, 10, *behind]


def test_an_event_that_is_put_back_runs_before_what_was_sorted_into_its_lane_meanwhile() -> None:
    rig, seen = recorded(lone=True)
    rig.read(10, 11, 12)
    line = rig.lane
    with rig.engine.lock:
        rig.engine.runs.begin(line, time.monotonic())
        rig.engine.runs._ready.fresh.clear()
    event = line.event(line.queue.popleft())
    with rig.engine.lock:
        assert rig.partition.lanes  # somebody asks for them
    rig.read(13)
    rig.engine.outcomes.put_back(line, event)
    rig.engine.runs.end([line])
    rig.go_on()
    assert seen == [10, 11, 12, 13]


def test_an_event_that_is_put_back_waits_for_what_comes_into_its_lane_meanwhile(lone: bool) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(10, 11, 12)
    lane = rig.lane
    with rig.engine.lock:
        rig.engine.runs.begin(lane, time.monotonic())
    event = lane.event(lane.queue.popleft())
    rig.reload(4)
    rig.save()
    rig.bring(rig.awake())
    assert [each.id for each in rig.lane.queue] == [4, 11, 12]
    rig.engine.outcomes.put_back(lane, event)
    rig.engine.runs._ready.fresh.clear()
    rig.engine.runs.end([lane])
    rig.go_on()
    assert seen == [4, 10, 11, 12]


def test_what_is_put_back_while_a_replay_is_fetched_waits_for_it(lone: bool) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(10, 11, 12)
    lane = rig.lane
    with rig.engine.lock:
        rig.engine.runs.begin(lane, time.monotonic())
    event = lane.event(lane.queue.popleft())
    rig.reload(4)
    rig.save()
    found = rig.awake()
    rig.engine.outcomes.put_back(lane, event)
    rig.bring(found)
    rig.engine.runs._ready.fresh.clear()
    rig.engine.runs.end([lane])
    rig.go_on()
    assert seen == [4, 10, 11, 12]


def test_what_fails_while_its_followers_are_fetched_goes_before_them(lone: bool) -> None:
    seen: list[int] = []
    found: list[object] = []

    def handler(event: DeliveredEvent) -> None:
        seen.append(event.id)
        if seen == [10]:
            rig.reload(4)
            rig.save()
            found.extend(rig.awake())  # the replay, and with it 11 and 12, which are held behind it by now
            raise ValueError("once")

    rig = moved(handler, lone=lone)
    rig.read(10, 11, 12)
    with rig.engine.lock:
        rig.engine.runs._ready.fresh.clear()
        rig.engine.runs.begin(rig.lane, time.monotonic())
    lane = rig.lane
    rig.runner.walk(lane, rig.walk())
    assert [row.id for row in found[0][2]] == [4, 11, 12]  # type: ignore[index]
    rig.bring(found)  # type: ignore[arg-type]
    rig.engine.runs.end([lane])
    rig.turn_begins = FAR
    rig.go_on()
    assert seen == [10, 4, 10, 11, 12]


def test_what_is_settled_and_saved_is_not_parked_before_its_runner_goes_on(lone: bool) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(10, 11)
    lane = rig.lane
    with rig.engine.lock:
        rig.engine.runs._ready.fresh.clear()
        rig.engine.runs.begin(lane, time.monotonic())
    lane.current = lane.event(lane.queue.popleft())
    lane.started -= STUCK + 1
    rig.settlement.settle(lane, lane.current, None)
    rig.save()
    with rig.engine.lock:
        rig.engine.runs.unstick({rig.partition}, lane.started + STUCK + 1)
    assert not rig.partition.parked.chains
    rig.engine.runs.end([lane])
    rig.go_on()
    assert seen == [11]


def test_what_runs_since_before_a_lost_connection_is_not_parked_beside_itself(lone: bool) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(10, 11)
    lane = rig.lane
    with rig.engine.lock:
        rig.engine.runs._ready.fresh.clear()
        rig.engine.runs.begin(lane, time.monotonic())
    lane.current = lane.event(lane.queue.popleft())
    rig.lose_connection()
    rig.read(10, 11)
    with rig.engine.lock:
        rig.engine.runs.unstick({rig.partition}, lane.started + STUCK + 1)
    assert [row.id for row in rig.partition.parked.chains[KEY]] == [10, 11]
    lane.done.append(lane.current.identity)
    rig.engine.runs.end([lane])
    rig.go_on()
    assert seen == [11]
    assert not rig.partition.parked.chains


def test_a_connection_lost_while_an_event_is_found_done_before_does_not_forget_that(lone: bool) -> None:
    rig, seen = recorded(lone=lone)
    rig.read(10, 11)
    rig.turn()
    assert seen == [10]
    rig.lose_connection()
    rig.partition.done_to = 0  # as if it had not been known when the page came
    with rig.engine.lock:
        remembered = rig.partition.resumption.remembered.copy()
        rig.partition.resumption.remembered.clear()
    rig.read(10, 11)
    rig.partition.resumption.remembered |= remembered
    event = rig.lane.event(rig.lane.queue[0])
    lane = rig.lane
    with rig.engine.lock:
        rig.engine.runs._ready.fresh.clear()
        rig.engine.runs.begin(lane, time.monotonic())
    lane.queue.popleft()
    rig.lose_connection()  # between the taking of the event and the look at what is remembered
    assert rig.engine.outcomes.recall(lane, event)
    rig.read(10, 11)
    rig.engine.runs.end([lane])
    rig.go_on()
    assert seen == [10, 11]


def test_what_is_read_again_while_a_line_is_walked_has_the_new_epoch() -> None:
    seen: list[tuple[int, int]] = []
    rig = moved(lambda event: seen.append((event.id, event.epoch)), lone=True)
    rig.turn_begins = FAR
    rig.read(1, 2, 3)

    def lost() -> None:
        rig.lose_connection()
        rig.read(1, 2, 3)

    rig.meanwhile = [lambda: None, lost]
    rig.go_on()
    assert seen == [(1, 1), (2, 2), (3, 2)]


def test_of_a_line_only_the_key_of_a_failed_event_waits_for_it() -> None:
    seen: list[int] = []

    def handler(event: DeliveredEvent) -> None:
        seen.append(event.id)
        if seen == [10]:
            raise ValueError("once")

    rig = moved(handler, lone=True)
    rig.read(10, 11, 12, 13, keys="kjkj")
    rig.turn_begins = FAR
    rig.turn()
    with rig.engine.lock:
        assert {key: [row.id for row in chain] for key, chain in rig.partition.parked.chains.items()} == {KEY: [10, 12]}
    rig.go_on()
    assert seen == [10, 11, 13, 10, 12]


def test_after_a_line_was_sorted_what_is_new_goes_behind_it() -> None:
    rig, seen = recorded(lone=True)
    rig.read(10, 11)
    with rig.engine.lock:
        assert len(rig.partition.lanes) == 1
    rig.read(12)
    rig.go_on()
    assert seen == [10, 11, 12]


def test_after_a_failure_the_line_goes_on() -> None:
    def handler(event: DeliveredEvent) -> None:
        raise ValueError("always")

    rig = moved(handler, lone=True)
    rig.read(10, 11)
    rig.turn_begins = FAR
    rig.turn()
    with rig.engine.lock:
        assert rig.partition.lined_up


OTHERS = ("nothing", "replay", "save", "awake", "bring", "read", "lose", "unstick")


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(OTHERS), max_size=25), st.sets(st.integers(100, 125), max_size=4))
def test_whatever_others_do_between_two_events_each_runs_once_and_in_order(
    lone: bool, others: list[str], failing: set[int]
) -> None:
    """`failing` fail at their first attempt. A replayed one (below 100) has no place among the others of its key."""
    seen: list[int] = []
    ended: list[int] = []
    found: list[object] = []
    replayed = iter(range(1, 100))
    stored: list[int] = []

    def handler(event: DeliveredEvent) -> None:
        seen.append(event.id)
        others_do()
        if event.id in failing:
            failing.discard(event.id)
            raise ValueError("once")
        ended.append(event.id)

    def others_do() -> None:
        if not others:
            return
        match others.pop():
            case "replay":
                stored.append(next(replayed))
                blocking = [row.id for row in rig.partition.parked.chains.get(KEY, ()) if not row.unsaved]
                rig.reload(*sorted({*blocking, stored[-1]}))
            case "save":
                rig.save()
            case "awake":
                found.extend(rig.awake())
            case "bring":
                rig.bring(found)  # type: ignore[arg-type]
                found.clear()
            case "read" if not found:  # the poller fetches what is awake before it reads on
                read_on()
            case "unstick":
                with rig.engine.lock:
                    rig.engine.runs.unstick({rig.partition}, 1e12)
            case "lose" if not rig.partition.parked.chains and not found:  # what is parked would have to be stored
                rig.lose_connection()
                last = rig.partition.progress.last_id
                read(*(id for id in range(100, rig.read_to + 1) if id > last))

    def read_on() -> None:
        page = range(max(100, rig.read_to + 1), max(100, rig.read_to + 1) + 5)
        rig.read_to = page[-1]
        read(*page)

    def read(*ids: int) -> None:
        rig.read(*ids, keys="".join(map(key_of, ids)))

    def key_of(id: int) -> str:
        return "j" if id % 3 == 0 else "k"

    rig = moved(handler, lone=lone)
    read_on()
    rig.meanwhile = [others_do] * 100
    for _ in range(40):
        rig.go_on()
        rig.bring(found)  # type: ignore[arg-type]
        found.clear()
        if not others:
            break
        others_do()
    rig.go_on()
    assert sorted(ended) == [*stored, *range(100, rig.read_to + 1)]
    for key in "jk":
        live = [id for id in ended if id >= 100 and key_of(id) == key]
        assert live == sorted(live)
    assert Page("1:1:", 0) == rig.partition.progress.target().page
    with rig.engine.lock:
        assert rig.partition.lined_up
