"""The circuit of a handler, in a worker on a real database: what opens it, what waits for it, how it closes."""

import asyncio
import threading

import pytest

from partbox import RetryAfterError
from partbox.errors import DownstreamUnavailable

HOUR = 3_600.0
OPEN = "is open: its events are deferred"


class Downstream:
    """Raises as long as it is down, once per number and call; keeps what came through."""

    def __init__(self, error):
        self.error, self.down, self.calls, self.through = error, True, [], []
        self._lock = threading.Lock()

    def __call__(self, event):
        with self._lock:
            self.calls.append((event.aggregate_id, event.payload["number"], event.attempt))
            if self.down:
                raise self.error.with_traceback(None)
            self.through.append((event.aggregate_id, event.payload["number"]))


def in_order(through, keys):
    return all(
        numbers == sorted(numbers)
        for key in keys
        for numbers in [[number for found, number in through if found == key]]
    )


def registered(desk, kind, call, event_type, **options):
    match kind:
        case "sync":
            desk.outbox.register(call, event_type, **options)
        case "async":

            async def later(event):
                await asyncio.sleep(0)
                call(event)

            desk.outbox.register(later, event_type, **options)
        case "transactional":
            desk.outbox.register(lambda event, conn: call(event), event_type, transactional=True, **options)


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_an_unavailable_downstream_stops_its_own_handler_only_and_costs_no_attempt(desk, caplog, max_attempts):
    """Three handlers of different kinds, each with a downstream of its own."""
    caplog.set_level("INFO", "partbox.worker")
    downstreams = {kind: Downstream(DownstreamUnavailable("down")) for kind in ("sync", "async", "transactional")}
    for kind, downstream in downstreams.items():
        registered(desk, kind, downstream, kind, name=kind, max_attempts=max_attempts)
    desk.outbox.register(desk.note, "Other")
    with desk.conn.transaction():
        for number in range(30):
            for kind in downstreams:
                desk.publish(f"{kind} {number % 10}", number, event_type=kind)
            desk.publish(f"other{number % 7}", number, event_type="Other")
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.seen) == 30)
        desk.eventually(lambda: len(desk.parked()) == 90)
        assert {(state, attempts) for _, state, attempts, _ in desk.parked()} <= {("deferred", 0), ("held", 0)}
        assert sum(OPEN in record.getMessage() for record in caplog.records) == 3
        for downstream in downstreams.values():
            downstream.down = False
        desk.eventually(desk.all_done)
    for kind, downstream in downstreams.items():
        assert sorted(number for _, number in downstream.through) == list(range(30)), kind
        assert in_order(downstream.through, [f"{kind} {number}" for number in range(10)]), kind
        assert {attempt for _, _, attempt in downstream.calls} == {1}, kind
    assert sum("is closed again" in record.getMessage() for record in caplog.records) == 3


def test_a_list_is_one_failure_and_a_probe_is_one_list(desk, caplog):
    caplog.set_level("INFO", "partbox.worker")
    lists, up = [], threading.Event()

    def take(events):
        lists.append([event.payload["number"] for event in events])
        if not up.is_set():
            raise DownstreamUnavailable("down")

    desk.outbox.on_batch("Counted", max_size=10, max_attempts=1)(take)
    for number in range(60):
        desk.publish(f"k{number % 12}", number)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 60)
        assert {state for _, state, _, _ in desk.parked()} <= {"deferred", "held", "ready"}
        tried = len(lists)
        up.set()
        desk.eventually(desk.all_done)
    assert tried <= 5  # the first, those that had started beside it, perhaps a probe
    delivered = [number for each in lists[tried:] for number in each]
    assert sorted(delivered) == list(range(60))
    assert in_order([(number % 12, number) for number in delivered], range(12))


def test_a_lone_poison_event_never_opens_it(desk_with, caplog):
    desk = desk_with(retry="fixed:0.001", max_attempts=40)

    def handle(event):
        desk.note(event)
        if event.aggregate_id.startswith("poison"):
            raise ValueError("broken")

    desk.outbox.register(handle, "Counted")
    for number in range(9):  # so many keys fail at the same time, and nothing else succeeds
        desk.publish(f"poison{number}", number)
    with desk.outbox.worker():
        desk.eventually(lambda: list(desk.states().values()) == ["dead"] * 9)
        desk.publish("k", 100)
        desk.eventually(lambda: desk.numbers() == [100])
    assert [attempts for _, _, attempts, _ in desk.parked()] == [40] * 9
    assert OPEN not in caplog.text


def test_ten_keys_that_fail_open_it_and_the_others_are_not_charged(desk_with, caplog):
    desk = desk_with(retry=f"fixed:{HOUR:g}")
    downstream = Downstream(RetryAfterError(HOUR, "broken"))
    desk.outbox.register(downstream, "Counted")
    for number in range(100):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker(concurrency=1):
        desk.eventually(lambda: len(desk.parked()) == 100)
        charged = [row for row in desk.parked() if row[2]]
        assert len(charged) == 9  # the tenth opened it
        assert {row[1] for row in desk.parked()} == {"retrying", "deferred"}
        assert OPEN in caplog.text
        downstream.down = False
        desk.eventually(lambda: len(downstream.through) == 91)
        desk.make_due()
        desk.eventually(desk.all_done)
    assert len(downstream.through) == 100
