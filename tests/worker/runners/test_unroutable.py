"""Events without a handler: what becomes of them; and in `default`, where one is expected, a warning for each type."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk

from partbox import Dead, RetryAfter, UnrecoverableError
from partbox.worker.reports import unroutable


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Any]]:
    caplog.set_level(logging.WARNING, "partbox")
    return lambda: [each for each in caplog.records if getattr(each, "event", None) == "partbox.unroutable"]


@pytest.mark.parametrize("fate", ["dead", "retry", "ignore"])
def test_the_warning_names_the_type_its_fate_and_the_handled_types_once(
    desk_with: Callable[..., Desk], warnings: Callable[[], list[Any]], fate: str
) -> None:
    desk = desk_with(on_unroutable=fate)
    desk.outbox.register(desk.note, "Counted")
    desk.outbox.register(desk.note, "Paid", "Order")
    desk.publish(None, 1, 2, 3, event_type="Countd")
    desk.publish(None, 4, event_type="Paid")
    desk.publish(None, 5)
    desk.drain()
    assert desk.numbers(None) == [5]
    assert len(desk.states()) == (0 if fate == "ignore" else 4)
    first, second = sorted(warnings(), key=lambda line: line.event_type)
    assert first.getMessage() == (
        "no handler takes 'Countd' of aggregate type 'Key' in subscription 'default': on_unroutable is "
        f"'{fate}'; handlers take 'Counted', 'Paid' of 'Order'"
    )
    assert (first.levelname, first.event_type, first.subscription) == ("WARNING", "Countd", "default")
    assert second.getMessage().startswith("no handler takes 'Paid' of aggregate type 'Key'")


def test_an_async_interceptor_does_not_change_the_warning(desk: Desk, warnings: Callable[[], list[Any]]) -> None:
    class Waiting:
        async def before(self, event: object) -> None: ...

    async def handle(event: object) -> None: ...

    desk.outbox.intercept(Waiting())
    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1, 2, event_type="Countd")
    desk.drain()
    assert desk.states() == {1: "dead", 2: "dead"}
    assert len(warnings()) == 1


def test_no_warning_is_logged_for_another_subscription_or_where_a_function_decides(
    desk_with: Callable[..., Desk], warnings: Callable[[], list[Any]]
) -> None:
    desk = desk_with(on_unroutable=lambda event: None)
    desk.outbox.subscriptions.create("audit", start="beginning")
    for name in ("default", "audit"):
        desk.outbox.register(desk.note, "Counted", subscription=name)
    desk.publish("k", 1, event_type="Countd")
    desk.drain()
    other = desk_with()
    other.outbox.register(other.note, "Counted", subscription="audit")
    other.drain("audit")
    assert warnings() == []


def test_only_a_bounded_number_of_types_is_warned_of_and_remembered(
    desk: Desk, warnings: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unroutable, "MAX_KINDS", 3)
    monkeypatch.setattr(unroutable, "MAX_NAMED_TYPES", 2)
    for name in "ABC":
        desk.outbox.register(desk.note, name)
    for number in range(8):
        desk.publish(None, number, event_type=f"{number}" * 255)
    with desk.outbox.worker() as worker:
        desk.eventually(lambda: len(desk.states()) == 8)
        seen = worker._worker._context.routes._default.handler.call.__closure__
    # From four threads, whose lines come in any order.
    last = [line.getMessage().endswith("; further types are not named") for line in warnings()]
    assert sorted(last) == [False, False, True]
    assert "handlers take 'A', 'B' and 1 more" in warnings()[0].getMessage()
    (missed,) = [
        cell.cell_contents for cell in seen or () if isinstance(cell.cell_contents, unroutable.UnroutableWarning)
    ]
    assert all(len(each) <= unroutable.MAX_TYPE_LENGTH for each in missed._seen)
    assert len(missed._seen) == 3


HOUR = 3_600.0  # seconds: never within a test, unless the due time is moved


UNROUTABLE = {
    "done": (None, None),
    "later": (RetryAfter(HOUR), ("deferred", 0)),
    "dead": (Dead("unknown"), ("dead", 1)),
    "garbage": (42, ("retrying", 1)),
    "raised": (ValueError("broken"), ("retrying", 1)),
    "never": (UnrecoverableError("never"), ("dead", 1)),
}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_decides_what_becomes_of_events_without_a_handler(desk_with, is_async):
    def decide(event):
        outcome = UNROUTABLE[event.event_type][0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def decide_later(event):
        return decide(event)

    desk = desk_with(retry=f"fixed:{HOUR:g}", on_unroutable=decide_later if is_async else decide)
    for number, event_type in enumerate(UNROUTABLE):
        desk.publish(event_type, number, event_type=event_type)
    expected = {number: after for number, (_, after) in enumerate(UNROUTABLE.values()) if after is not None}
    desk.drain()
    assert {number: (state, n) for number, state, n, _ in desk.parked()} == expected
    assert desk.done() == 1


def test_an_event_without_a_handler_is_delivered_when_there_is_one(desk_with):
    desk = desk_with(on_unroutable="retry")
    desk.outbox.register(desk.note, "Other")
    desk.publish("k", 1)
    desk.drain()
    assert desk.parked() == [(1, "deferred", 0, True)]
    desk.outbox.register(desk.note, "Counted")
    desk.drain_again()
    assert desk.all_done()
    assert desk.seen == [("k", 1, 1)]


def test_another_subscription_ignores_events_that_it_has_no_handler_for(desk):
    desk.outbox.subscriptions.create("other", start="beginning")
    desk.outbox.register(desk.note, "Counted", subscription="other")
    desk.publish("k", 1, event_type="Unknown")
    desk.publish("k", 2)
    desk.drain("other")
    assert desk.numbers() == [2]
    assert desk.parked() == []
