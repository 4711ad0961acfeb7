"""A worker whose subscription has no handler delivers nothing, and does not start."""

import os
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from desk import Desk

from partbox import Outbox
from partbox.codecs import Codecs
from partbox.errors import RegistrationError
from partbox.handlers import Handlers
from partbox.supervisor.child import Job, _run_worker
from partbox.supervisor.exit_codes import FATAL
from partbox.worker.slot import Slot

LACK = r"^subscription 'default' has no handler, .* register one, such as @outbox\.on\(\"OrderPlaced\"\); "


def untouched(conn: psycopg.Connection[Any]) -> bool:
    """Nothing was claimed, nothing delivered, and nobody has joined."""
    counts = """select (select count(owner) from partbox.partition), (select count(*) from partbox.instance),
                       (select count(*) from partbox.parked),
                       (select count(*) from partbox.record_status where status <> 'pending')"""
    return conn.execute(counts).fetchone() == (0, 0, 0, 0)


STARTS: dict[str, Callable[[Outbox], object]] = {
    "worker": lambda outbox: outbox.worker().start(),
    "drain": lambda outbox: outbox.drain(timeout=5),
    "supervisor": lambda outbox: outbox.supervisor(processes=1).start(),
    "run": lambda outbox: outbox.run(processes=1, until_empty=True),
    "run by a source": lambda outbox: outbox._make_nodes(load_handlers=lambda: (outbox.handlers, outbox.codecs)).run(
        until_empty=True
    ),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_worker_without_handlers_refuses_to_start_before_anything_is_claimed(
    desk: Desk, start: Callable[[Outbox], object]
) -> None:
    desk.publish("k", 1, 2)
    with pytest.raises(RegistrationError, match=f"{LACK}no other subscription has one either$"):
        start(desk.outbox)
    assert untouched(desk.conn)


def test_the_error_names_the_subscription_and_the_subscriptions_that_have_handlers(desk: Desk) -> None:
    for name in ("audit", "mail"):
        desk.outbox.register(desk.note, "Counted", subscription=name)
    with pytest.raises(RegistrationError, match=f"{LACK}there are handlers of 'audit', 'mail'$"):
        desk.outbox.drain()
    said = r"^subscription 'bills' has no handler, .*@outbox\.on\(\"OrderPlaced\", subscription='bills'\); "
    with pytest.raises(RegistrationError, match=said):
        desk.outbox.worker(subscription="bills").start()


def test_a_handler_that_is_registered_after_the_worker_was_made_does_not_belong_to_it(desk: Desk) -> None:
    worker = desk.outbox.worker()
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1)
    with pytest.raises(RegistrationError, match=LACK):
        worker.start()
    assert untouched(desk.conn)
    assert desk.outbox.drain()
    assert desk.numbers() == [1]


def test_a_function_for_unroutable_events_is_enough_to_start(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(on_unroutable=lambda event: desk.note(event))
    desk.publish("k", 1)
    assert desk.outbox.drain()
    assert desk.numbers() == [1]


@pytest.mark.parametrize("fate", ["dead", "ignore", "retry"])
def test_a_fixed_fate_for_unroutable_events_is_not_enough_to_start(desk_with: Callable[..., Desk], fate: str) -> None:
    with pytest.raises(RegistrationError, match=LACK):
        desk_with(on_unroutable=fate).outbox.drain()


def test_a_worker_that_is_not_enabled_needs_no_handlers(desk_with: Callable[..., Desk]) -> None:
    with desk_with(enabled=False).outbox.worker():
        pass


def test_handlers_from_a_source_are_checked_before_any_process_is_started(dsn: str) -> None:
    """A source that gives another outbox is asked before anything is started."""
    asked = []

    def load() -> tuple[Handlers, Codecs]:
        asked.append(os.getpid())
        return Handlers(), Codecs()

    with pytest.raises(RegistrationError, match=LACK):
        Outbox(dsn)._make_nodes(load_handlers=load).build_supervisor().start()
    assert asked == [os.getpid()]


def test_a_process_that_finds_no_handlers_ends_the_node_instead_of_being_replaced(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(dsn)
    job = Job(outbox.settings, lambda: (Handlers(), outbox.codecs), lambda: dsn, "default", 1, 20)
    assert _run_worker(job, Slot.create_local(), None, os.getppid()) == FATAL
    (line,) = [each for each in caplog.records if getattr(each, "event", None) == "partbox.worker_failed"]
    assert "subscription 'default' has no handler" in line.getMessage()


def test_the_fallback_for_unroutable_events_is_not_counted_as_a_handler(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "partbox")
    desk.outbox.register(desk.note, "Counted")
    desk.outbox.register(desk.note, "Paid")
    with desk.outbox.worker():
        pass
    (line,) = [each for each in caplog.records if getattr(each, "event", None) == "partbox.worker_started"]
    assert (
        "delivering in this process in subscription 'default': 1 handler, up to 4 at once" in line.getMessage()
    )  # one, of two types
    assert line.handlers == 1
