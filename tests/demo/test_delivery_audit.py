"""The audit finds what a broken outbox would do: it is fed by recorders, as the demo's worker processes feed it."""

import os
from dataclasses import dataclass, field

import pytest

from partbox.demo.audit import DELIVERY, STEPS, DeliveryAudit, DemoRecorder


@dataclass
class Event:
    """As much of a delivered event as a recorder looks at."""

    order: int
    step: int
    epoch: int = 1
    partition: int = 7
    payload: dict = field(default_factory=lambda: {"sent": 1, "declined": False})

    @property
    def aggregate_id(self) -> str:
        return str(self.order)

    @property
    def event_type(self) -> str:
        return STEPS[self.step - 1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deliveries"


@pytest.fixture
def audit(path):
    audit = DeliveryAudit(path)
    yield audit
    audit.close()


@pytest.fixture
def deliver(path):
    recorder = DemoRecorder(path)

    def deliver(*events: Event) -> None:
        for event in events:
            recorder.handle(event)

    yield deliver
    if "_file" in vars(recorder):
        os.close(recorder._file)


def counts(audit: DeliveryAudit) -> dict[str, int]:
    audit.read_deliveries()
    names = ("delivered", "duplicates", "unexplained", "out_of_order", "phantoms")
    return {name: getattr(audit, name) for name in names if getattr(audit, name)}


def test_every_step_delivered_once_and_in_order_keeps_the_promise(audit, deliver):
    deliver(Event(1, 1), Event(2, 1), Event(1, 2), Event(1, 3), Event(2, 2))
    assert counts(audit) == {"delivered": 5}
    assert audit.compare_orders([(1, 3), (2, 2)]) == (5, 0, 0)


def test_a_step_before_the_one_it_follows_is_out_of_order(audit, deliver):
    deliver(Event(1, 1), Event(1, 3), Event(1, 2))
    assert counts(audit) == {"delivered": 3, "out_of_order": 1}


def test_a_step_that_the_shop_took_and_no_handler_received_is_lost(audit, deliver):
    deliver(Event(1, 1), Event(1, 2))
    audit.read_deliveries()
    assert audit.compare_orders([(1, 3), (2, 1)]) == (4, 2, 0)


def test_a_step_that_the_shop_never_took_is_made_up(audit, deliver):
    deliver(Event(1, 1), Event(1, 2), Event(5, 1))
    audit.read_deliveries()
    assert audit.compare_orders([(1, 1)]) == (1, 0, 2)


def test_an_event_of_a_transaction_that_was_rolled_back_is_a_phantom(audit, deliver):
    deliver(Event(1, 1), Event(1, 2, payload={"sent": 1, "declined": True}))
    assert counts(audit) == {"delivered": 1, "phantoms": 1}


def test_a_new_owner_may_repeat_events_that_a_killed_owner_did_not_save(audit, deliver):
    deliver(Event(1, 1), Event(1, 2))
    audit.read_deliveries()
    audit.expect_repeats(os.getpid())
    deliver(Event(1, 1, epoch=2), Event(1, 2, epoch=2), Event(1, 3, epoch=2))
    assert counts(audit) == {"delivered": 3, "duplicates": 2}


def test_a_new_owner_that_repeats_must_go_on_in_order_from_its_first_repeat(audit, deliver):
    deliver(Event(1, 1), Event(1, 2))
    audit.read_deliveries()
    audit.expect_repeats(os.getpid())
    deliver(Event(1, 1, epoch=2), Event(1, 3, epoch=2))
    assert counts(audit) == {"delivered": 3, "duplicates": 1, "out_of_order": 1}


def test_no_kill_explains_repeats_by_a_graceful_successor(audit, deliver):
    deliver(Event(1, 1), Event(1, 1, epoch=2))
    assert counts(audit) == {"delivered": 1, "duplicates": 1, "unexplained": 1}


def test_a_delivery_by_an_owner_that_has_a_successor_is_out_of_order(audit, deliver):
    deliver(Event(1, 1, epoch=2), Event(1, 2, epoch=1))
    assert counts(audit) == {"delivered": 2, "out_of_order": 1}


def test_a_partly_written_delivery_is_read_once_it_is_complete(audit, path, deliver):
    deliver(Event(1, 1), Event(1, 2))
    written = path.read_bytes()
    path.write_bytes(written[: DELIVERY.size + 9])
    assert [each.step for each in audit.read_deliveries()] == [1]
    with path.open("ab") as file:
        file.write(written[DELIVERY.size + 9 :])
    assert [each.step for each in audit.read_deliveries()] == [2]
