"""Tracebacks of handlers: stored with the parked event, shown by the commands' Python twins, and logged."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk

from partbox import RetryAfter, UnrecoverableError
from partbox.errors import PayloadError

HOUR = 3_600


def fails(event: Any) -> None:
    customer = "sesame"
    raise ValueError(f"no such customer, {len(customer)} letters")


def sync(event: Any) -> None:
    fails(event)


async def asynchronous(event: Any) -> None:
    await asyncio.sleep(0)
    fails(event)


def of_a_list(events: list[Any]) -> None:
    fails(events[0])


def within_a_list(events: list[Any]) -> list[Any]:
    try:
        fails(events[0])
    except ValueError as error:
        return [error]
    return []


def transactional(event: Any, conn: Any) -> None:
    fails(event)


def with_a_cause(event: Any) -> None:
    try:
        fails(event)
    except ValueError as error:
        raise KeyError("not found") from error


HANDLERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sync": (sync, {}),
    "asynchronous": (asynchronous, {}),
    "of_a_list": (of_a_list, {"batch": True}),
    "within_a_list": (within_a_list, {"batch": True}),
    "transactional": (transactional, {"transactional": True}),
    "with_a_cause": (with_a_cause, {}),
}


def register(desk: Desk, handler: Callable[..., Any], batch: bool = False, **options: Any) -> None:
    (desk.outbox.on_batch if batch else desk.outbox.on)("Counted", **options)(handler)


@pytest.mark.parametrize("name", HANDLERS)
def test_the_traceback_is_stored_with_a_failure_and_a_death(desk_with: Callable[..., Desk], name: str) -> None:
    handler, options = HANDLERS[name]
    desk = desk_with(retry=f"fixed:{HOUR}", max_attempts=2)
    register(desk, handler, **options)
    desk.publish("k", 1)
    desk.drain()
    (blocked,) = desk.outbox.blocked.list()
    desk.drain_again()
    (dead,) = desk.outbox.dead.list()
    for trace in (blocked.traceback, dead.traceback, desk.outbox.dead.show(dead.record_id).traceback):
        assert trace.startswith("Traceback (most recent call last):\n")
        assert f"in {name}\n" in trace
        assert 'in fails\n    raise ValueError(f"no such customer, {len(customer)} letters")\n' in trace
        assert trace.splitlines()[-1].startswith("KeyError" if name == "with_a_cause" else "ValueError: no such")
        assert "partbox/worker" not in trace
        assert "sesame" not in trace  # what a variable holds
    assert dead.traceback not in repr(dead)
    (stored,) = desk.conn.execute("select traceback from partbox.dead").fetchone() or ()
    assert stored == dead.traceback


def test_an_async_handler_over_its_time_shows_where_it_was(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(retry=f"fixed:{HOUR}")

    @desk.outbox.on("Counted", timeout=0.05)
    async def slow(event: object) -> None:
        await asyncio.sleep(60)

    desk.publish("k", 1)
    desk.drain()
    (blocked,) = desk.outbox.blocked.list()
    assert blocked.error_type == "TimeoutError"
    assert "await asyncio.sleep(60)" in blocked.traceback
    assert "partbox/worker" not in blocked.traceback


def unroutable(desk: Desk) -> None:
    desk.outbox.register(desk.note, "Other")


def returned(desk: Desk) -> None:
    desk.outbox.register(lambda event: 42, "Counted", max_attempts=1)


NO_TRACE = {"unroutable": unroutable, "returned": returned}


@pytest.mark.parametrize("prepare", NO_TRACE.values(), ids=NO_TRACE)
def test_a_failure_that_no_handler_has_raised_has_no_traceback(
    desk: Desk, prepare: Callable[[Desk], None], caplog: pytest.LogCaptureFixture
) -> None:
    prepare(desk)
    desk.publish("k", 1)
    desk.drain()
    (dead,) = desk.outbox.dead.list()
    assert (dead.traceback, dead.error is None) == (None, False)
    assert "Traceback" not in caplog.text


def test_an_undecodable_event_has_no_traceback_and_a_payload_error_of_a_handler_has_one(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    @desk.outbox.on("Counted")
    def read(event: Any) -> None:
        if event.aggregate_id == "own":
            raise PayloadError("a total is missing")
        _ = event.payload

    with desk.conn.transaction():
        desk.outbox.publish(desk.conn, "Counted", b"\x00", content_type="application/x-unknown", aggregate_id="k")
        desk.conn.execute("update partbox.record set headers = null")
    desk.publish("own", 1)
    desk.drain()
    found = {each.aggregate_id: each.traceback for each in desk.outbox.dead.list()}
    assert found["k"] is None
    assert 'raise PayloadError("a total is missing")' in found["own"]
    traced = {each.record_id: each.exc_info for each in caplog.records if each.event == "partbox.decode_error"}
    assert [info is None for _, info in sorted(traced.items())] == [True, False]


def test_the_next_error_replaces_the_traceback_and_a_deferral_without_an_error_keeps_it(
    desk_with: Callable[..., Desk],
) -> None:
    desk = desk_with(retry=f"fixed:{HOUR}")
    script = iter([lambda: 1 / 0, lambda: RetryAfter(HOUR), lambda: 42])
    desk.outbox.register(lambda event: next(script)(), "Counted")
    desk.publish("k", 1)
    seen = []
    for state, error in (
        ("retrying", "division by zero"),
        ("deferred", "division by zero"),
        ("retrying", "a handler may return None"),
    ):
        desk.drain_again()
        (blocked,) = desk.outbox.blocked.list()
        assert (blocked.state, error in blocked.error) == (state, True)
        seen.append(blocked.traceback)
    assert seen[0] == seen[1]
    assert "ZeroDivisionError" in seen[0]
    assert seen[2] is None


def test_a_replay_keeps_the_error_and_its_traceback(desk: Desk) -> None:
    desk.outbox.register(sync, "Counted", max_attempts=1)
    desk.publish("k", 1)
    desk.drain()
    (dead,) = desk.outbox.dead.list()
    desk.outbox.dead.replay(dead.record_id)
    stored = desk.conn.execute("select state, last_error, traceback from partbox.parked").fetchone()
    assert stored == ("ready", f"{dead.error_type}: {dead.error}", dead.traceback)


def test_error_limit_bounds_the_traceback_too(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(error_limit=150, max_attempts=1)
    desk.outbox.register(sync, "Counted")
    desk.publish("k", 1)
    desk.drain()
    (dead,) = desk.outbox.dead.list()
    assert len(dead.traceback) <= 150
    assert dead.traceback.splitlines()[-1].startswith("ValueError: no such customer")


def test_the_log_has_the_traceback_at_debug_for_a_retry_and_at_error_for_a_death(
    desk_with: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "partbox")
    desk = desk_with(max_attempts=2)
    desk.outbox.register(sync, "Counted")
    desk.publish("k", 1)
    desk.drain()
    desk.drain_again()
    traced = [each for each in caplog.records if each.exc_info]
    assert [(each.event, each.levelname, each.attempts) for each in traced] == [
        ("partbox.failure", "DEBUG", 1),
        ("partbox.dead", "ERROR", 2),
    ]
    for each in traced:
        shown = logging.Formatter().format(each)
        assert "in fails" in shown
        assert "partbox/worker" not in shown


def test_an_unrecoverable_error_is_stored_with_its_traceback_and_its_cause(desk: Desk) -> None:
    @desk.outbox.on("Counted")
    def refuse(event: Any) -> None:
        raise UnrecoverableError("never") from KeyError("customer")

    desk.publish("k", 1)
    desk.drain()
    (dead,) = desk.outbox.dead.list()
    assert "KeyError: 'customer'\n\nwhich caused:" in dead.traceback
    assert 'raise UnrecoverableError("never") from KeyError("customer")' in dead.traceback
