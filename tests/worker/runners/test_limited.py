"""Handlers with limits, on a real database, in every way in which handlers run."""

import asyncio
import threading
import time

import pytest

RATE = 50


class Calls:
    """Starts by key (monotonic seconds), and how many calls ran at once at most, in all and by key."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.starts = []
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def begin(self, events):
        with self._lock:
            self.starts.append((time.monotonic(), [(each.aggregate_id, each.payload["number"]) for each in events]))
            self.running += 1
            self.most = max(self.most, self.running)

    def end(self):
        with self._lock:
            self.running -= 1

    def numbers(self):
        return [number for _, events in self.starts for _, number in events]

    def one(self, event):
        self.many([event])

    def many(self, events):
        self.begin(events)
        time.sleep(self.seconds)
        self.end()

    async def one_async(self, event):
        await self.many_async([event])

    async def many_async(self, events):
        self.begin(events)
        await asyncio.sleep(self.seconds)
        self.end()


WAYS = ["sync alone", "sync", "async", "async beside sync", "lists", "async lists"]


def register(outbox, calls, way, **options):
    if "lists" in way:
        call = calls.many_async if "async" in way else calls.many
        outbox.on_batch("Counted", max_size=3, name="limited", **options)(call)
    else:
        outbox.on("Counted", name="limited", **options)(calls.one_async if "async" in way else calls.one)
    if "beside" in way:
        outbox.on("Other", name="other")(lambda event: None)
    return 1 if "alone" in way else 4


def assert_rate(calls, rate):
    """In no window did more start than the rate allows, and once what one second brings."""
    starts = [at for at, _ in calls.starts]
    for first, at in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= rate * (starts[last] - at) + rate + 1e-3


@pytest.mark.parametrize("way", WAYS)
def test_no_more_calls_start_than_the_rate_allows_and_every_event_has_its_turn_in_order(desk, way):
    calls = Calls()
    concurrency = register(desk.outbox, calls, way, rate=f"{RATE}/s")
    for number in range(40):
        desk.publish(f"k{number % 5}" if number % 8 else None, number)
    began = time.monotonic()
    with desk.outbox.worker(concurrency=concurrency):
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == list(range(40))
    for key in range(5):
        mine = [number for _, events in calls.starts for name, number in events if name == f"k{key}"]
        assert mine == sorted(mine)
    assert_rate(calls, RATE)
    assert len(calls.starts) <= RATE * (time.monotonic() - began)  # a process begins with nothing saved up
    assert desk.parked() == []


@pytest.mark.parametrize("way", WAYS)
def test_no_more_calls_run_at_once_than_the_limit(desk, way):
    calls = Calls(0.01)
    concurrency = register(desk.outbox, calls, way, at_once=2)
    for number in range(24):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker(concurrency=concurrency):
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == list(range(24))
    assert calls.most <= 2
