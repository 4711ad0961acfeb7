"""Batch handlers, on a real database."""

import asyncio
import threading

import pytest
from neighbours import SOON, released_at_the_end
from waiting import eventually

from partbox import Dead, Done, RetryAfter

LATER = 3_600.0


class Taking:
    """A batch handler that keeps the numbers of each list, and answers what `answer(numbers)` says."""

    def __init__(self, answer=lambda numbers: None):
        self.lists = []
        self.answer = answer

    def handle(self, events):
        numbers = [event.payload["number"] for event in events]
        self.lists.append(numbers)
        result = self.answer(numbers)
        if isinstance(result, BaseException):
            raise result
        return result


@pytest.fixture
def desk(desk_with):
    return desk_with(retry=f"fixed:{LATER:g}")


def test_a_list_takes_waiting_events_of_many_aggregates_in_order(desk):
    taking = Taking()
    desk.outbox.on_batch("Counted", max_size=10)(taking)
    for number in range(20):
        desk.publish(f"k{number % 4}", number)
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    assert sorted(number for each in taking.lists for number in each) == list(range(20))
    assert 5 < max(map(len, taking.lists)) <= 10
    for key in range(4):
        mine = [number for each in taking.lists for number in each if number % 4 == key]
        assert mine == sorted(mine)


def test_the_outcomes_that_a_list_returns_are_applied_per_event(desk):
    outcomes = {1: Done(), 2: Dead("bad"), 3: RetryAfter(LATER), 4: ValueError("no"), 5: None}
    desk.outbox.on_batch("Counted", max_size=10)(Taking(lambda numbers: [outcomes[number] for number in numbers]))
    for number in outcomes:
        desk.publish(f"k{number}", number)
    desk.drain()
    assert desk.parked() == [(2, "dead", 1, False), (3, "deferred", 0, True), (4, "retrying", 1, True)]


def test_followers_of_a_failed_event_are_done_if_the_handler_says_so_and_held_if_not(desk):
    failed = {1: ValueError("no")}
    desk.outbox.on_batch("Counted", max_size=10)(Taking(lambda numbers: [failed.get(number) for number in numbers]))
    desk.publish("k", 1, 2, 3)
    desk.drain()
    assert desk.parked() == [(1, "retrying", 1, True)]
    desk.publish("k", 4)
    desk.drain()
    assert desk.parked() == [(1, "retrying", 1, True), (4, "held", 0, True)]


@pytest.mark.parametrize("wrong", [ValueError("no"), [None] * 4, "done"])
def test_a_list_that_fails_charges_the_first_of_each_key_and_holds_the_others(desk, wrong):
    desk.outbox.on_batch("Counted", max_size=10)(Taking(lambda _: wrong))
    desk.publish("a", 1, 2)
    desk.publish("b", 3)
    desk.drain()
    parked = desk.parked()
    if wrong == "done":
        assert parked == [(1, "retrying", 1, True), (2, "retrying", 1, True), (3, "retrying", 1, True)]
    else:
        assert parked == [(1, "retrying", 1, True), (2, "held", 0, True), (3, "retrying", 1, True)]


def test_an_event_that_fails_its_list_is_found_and_takes_nobody_with_it(desk_with):
    desk = desk_with(max_attempts=4)
    taking = Taking(lambda numbers: ValueError("bad") if 5 in numbers else None)
    desk.outbox.on_batch("Counted", max_size=50)(taking)
    desk.publish("k", *range(10))
    while desk.drain_again():
        pass
    assert desk.parked() == [(5, "dead", 4, False)]
    assert any(5 in numbers and len(numbers) > 1 for numbers in taking.lists)
    assert [5] in taking.lists


def test_async_batch_handlers_take_lists_too(desk):
    seen = []

    async def take(events):
        await asyncio.sleep(0)
        seen.append([event.payload["number"] for event in events])

    desk.outbox.on_batch("Counted", max_size=3)(take)
    desk.publish("k", *range(7))
    desk.drain()
    assert desk.all_done()
    assert [number for each in seen for number in each] == list(range(7))
    assert max(map(len, seen)) == 3


def test_a_handler_may_ask_for_few_of_a_key_in_a_list(desk):
    class Few(Taking):
        max_size = 10
        per_key = 2

    taking = Few()
    desk.outbox.register(taking, "Counted")
    for number in range(18):
        desk.publish(f"k{number % 3}", number)
    desk.drain()
    assert desk.all_done()
    assert max(map(len, taking.lists)) > 2
    for key in range(3):
        mine = [[number for number in each if number % 3 == key] for each in taking.lists]
        assert max(map(len, mine)) <= 2
        assert [number for each in mine for number in each] == list(range(key, 18, 3))


def test_a_list_holds_events_of_one_handler_only_and_a_key_keeps_its_order_across_handlers(desk):
    ran = []
    for event_type in ("Counted", "Weighed"):

        @desk.outbox.on_batch(event_type, max_size=10)
        def take(events, event_type=event_type):
            assert {event.event_type for event in events} == {event_type}
            ran.extend(event.payload["number"] for event in events)

    for number in range(24):
        desk.publish(f"k{number % 4}", number, event_type="Weighed" if number % 8 > 3 else "Counted")
    desk.drain()
    assert desk.all_done()
    for key in range(4):
        assert [number for number in ran if number % 4 == key] == list(range(key, 24, 4))


def test_parked_events_that_come_back_in_a_list_leave_no_row_when_they_are_done(desk):
    asked = [lambda numbers: [RetryAfter(0)] * len(numbers)]
    taking = Taking(lambda numbers: asked.pop()(numbers) if asked else None)
    desk.outbox.on_batch("Counted", max_size=10)(taking)
    for number in range(8):
        desk.publish(f"k{number % 4}", number)
    desk.drain()
    assert len(desk.parked()) == 8
    desk.drain()
    assert desk.all_done()
    assert desk.parked() == []
    for key in range(4):
        mine = [number for each in taking.lists for number in each if number % 4 == key]
        assert mine[-2:] == [key, key + 4]


def test_a_list_counts_as_one_handler(desk):
    """Two slots: a long list of many lanes leaves the other slot to somebody else."""
    inside, go_on = threading.Event(), threading.Event()
    slots, lists = [threading.Event(), threading.Event()], []

    def wait(events):
        lists.append(len(events))
        inside.set()
        go_on.wait(120)

    desk.outbox.on_batch("Counted", max_size=50)(wait)

    @desk.outbox.on("First")
    def occupy(event):
        slots[event.payload["number"]].wait(120)

    desk.outbox.register(desk.note, "Other")
    with desk.outbox.worker(concurrency=2) as worker:
        for number in range(2):
            desk.publish(f"first{number}", number, event_type="First")
        load = worker._worker.poller.load_report.measure_load
        desk.eventually(lambda: load().running == 2)
        for number in range(20):
            desk.publish(f"k{number}", number)
        desk.eventually(lambda: load().lanes == 22)  # all of them wait for one of the slots
        slots[0].set()
        desk.eventually(inside.is_set)
        slots[1].set()
        desk.publish("other", 1, event_type="Other")
        desk.eventually(lambda: desk.numbers("other") == [1])
        assert lists == [20]
        go_on.set()
        desk.eventually(desk.all_done)


# An event that a list looked at and put back must not stay the current one of its lane: it would look as if it ran, and
# be charged with an attempt when the list is over its timeout.
def test_an_event_that_a_list_puts_back_does_not_count_as_running(desk_with):
    desk, lists = desk_with(retry=f"fixed:{LATER}"), []
    blocked, unblock, inside, release = (threading.Event() for _ in range(4))

    def block(event):
        blocked.set()
        unblock.wait(120)

    def take(events):
        lists.append([event.payload["number"] for event in events])
        if lists[-1] == [1] and len(lists) == 1:
            raise ValueError("once")
        if 2 in lists[-1]:
            inside.set()
            release.wait(120)

    desk.outbox.register(block, "Block")
    desk.outbox.on_batch("Counted", max_size=10)(take)
    desk.publish("retried", 1)
    with desk.outbox.worker(concurrency=1) as worker, released_at_the_end(unblock, release):
        scheduler = worker._worker.engine.scheduler
        eventually(lambda: desk.states() == {1: "retrying"}, SOON)
        desk.publish("block", 0, event_type="Block")
        assert blocked.wait(SOON)
        desk.make_due()
        eventually(lambda: scheduler._ready_queue.due_lanes, SOON)
        desk.publish("fresh", 2)
        eventually(lambda: scheduler._ready_queue.new_lanes, SOON)
        scheduler._ready_queue._rotation = 0  # a fresh one is next
        unblock.set()
        assert inside.wait(SOON)
        assert [lane.current_event.aggregate_id for lane in scheduler.list_running()] == ["fresh"]
        release.set()
        eventually(desk.all_done, SOON)
