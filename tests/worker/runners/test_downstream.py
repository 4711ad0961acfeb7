"""The circuit of a handler, in a worker on a real database: what opens it, what waits for it, how it closes."""

import threading

import pytest
from downstream import OPEN, Downstream, in_order, registered

from partbox.errors import DownstreamUnavailable, RegistrationError

HOUR = 3_600.0


def test_an_unavailable_downstream_stops_its_own_handler_only_and_costs_no_attempt(desk, caplog):
    """Four handlers of different kinds and limits, each with a downstream of its own."""
    caplog.set_level("INFO", "partbox.worker")
    most = {"sync": 1, "async": 1, "transactional": 1, "list": 3}
    downstreams = {kind: Downstream(DownstreamUnavailable("down")) for kind in most}
    for kind, downstream in downstreams.items():
        registered(desk, kind, downstream, kind, name=kind, max_attempts=most[kind])
    desk.outbox.register(desk.note, "Other")
    with desk.conn.transaction():
        for number in range(30):
            for kind in downstreams:
                desk.publish(f"{kind} {number % 10}", number, event_type=kind)
            desk.publish(f"other{number % 7}", number, event_type="Other")
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.seen) == 30)
        desk.eventually(lambda: len(desk.parked()) == 120)
        assert {(state, attempts) for _, state, attempts, _ in desk.parked()} <= {("deferred", 0), ("held", 0)}
        assert sum(OPEN in record.getMessage() for record in caplog.records) == 4
        for downstream in downstreams.values():
            downstream.down = False
        desk.eventually(desk.all_done)
    for kind, downstream in downstreams.items():
        assert sorted(number for _, number in downstream.through) == list(range(30)), kind
        assert in_order(downstream.through, [f"{kind} {number}" for number in range(10)]), kind
        assert {attempt for _, _, attempt in downstream.calls} == {1}, kind
    assert sum("is closed again" in record.getMessage() for record in caplog.records) == 4


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


def test_a_few_poison_events_never_open_the_circuit(desk_with, caplog):
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


def test_ten_keys_that_fail_open_the_circuit_and_the_others_are_not_charged(desk_with, caplog):
    desk = desk_with(retry=f"fixed:{HOUR:g}", max_attempts=1_000)
    downstream = Downstream(ConnectionError("refused"))
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"circuit": "off"}, {}),
        ({"circuit": "off"}, {"circuit_on": KeyError}),
        ({}, {"circuit": "off"}),
        ({}, {"circuit": False, "circuit_on": KeyError}),
    ],
)
@pytest.mark.parametrize("error", [ConnectionError("refused"), DownstreamUnavailable("down"), KeyError("card")])
def test_a_circuit_that_is_off_never_opens(desk_with, caplog, settings, options, error):
    desk = desk_with(retry="fixed:0.01", max_attempts=2, **settings)
    desk.outbox.register(Downstream(error), "Counted", **options)
    for number in range(12):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker():
        desk.eventually(lambda: list(desk.states().values()) == ["dead"] * 12)
    assert {attempts for _, _, attempts, _ in desk.parked()} == {2}
    assert OPEN not in caplog.text


class Away(Exception):
    """What the client of a downstream raises, which is no OSError."""


@pytest.mark.parametrize(
    ("settings", "options", "opens", "not_opens"),
    [
        ({}, {"circuit_on": Away}, [Away(), ConnectionError()], KeyError()),
        ({}, {"circuit_on": (Away, "KeyError")}, [Away(), KeyError(), OSError()], ValueError()),
        ({}, {"circuit": Away}, [Away()], ConnectionError()),
        ({"circuit": [Away]}, {}, [Away()], ConnectionError()),
        ({"circuit": "KeyError"}, {"circuit_on": [Away]}, [Away(), KeyError()], ConnectionError()),
        ({"circuit": "off"}, {"circuit": "on"}, [ConnectionError()], Away()),
    ],
)
def test_the_errors_that_open_the_circuit_can_be_named_for_all_handlers_and_for_one(
    desk_with, caplog, settings, options, opens, not_opens
):
    desk = desk_with(retry="fixed:0.01", max_attempts=1, **settings)
    downstreams = [Downstream(error) for error in [*opens, not_opens]]
    for number, downstream in enumerate(downstreams):
        desk.outbox.register(downstream, f"Type{number}", name=f"h{number}", **options)
        for each in range(15):
            desk.publish(f"{number} {each}", 100 * number + each, event_type=f"Type{number}")
    desk.drain()
    assert len(desk.parked()) == 15 * len(downstreams)
    dead = [number // 100 for number, state in desk.states().items() if state == "dead"]
    assert [dead.count(number) for number in range(len(downstreams))] == [9] * len(opens) + [15]
    opened = [record.getMessage() for record in caplog.records if OPEN in record.getMessage()]
    assert len(opened) == len(opens)


@pytest.mark.parametrize("options", [{"circuit": "shop.Nothing"}, {"circuit_on": "nothing.Error"}])
def test_a_circuit_with_a_name_that_is_no_error_keeps_a_worker_from_starting(desk, options):
    desk.outbox.register(desk.note, "Counted", name="mail", **options)
    with pytest.raises(RegistrationError, match=r"the circuit of mail .* cannot be made: '.*' cannot be imported"):
        desk.outbox.drain()
