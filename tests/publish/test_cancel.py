"""Cancelling delayed events: what is told to have come in time never runs, and everything else does."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from cancelling import DUE, HOUR, SOON, Shop, app, shop
from psycopg import Connection
from waiting import eventually

from partbox import Event

__all__ = ["app", "shop"]


@pytest.mark.parametrize("parked", [False, True])
def test_a_delayed_event_that_is_cancelled_never_runs_and_the_others_do(shop: Shop, parked: bool) -> None:
    """In any subscription, whether it was read before or not."""
    first, _, last = (shop.publish(n) for n in range(3))
    if parked:
        assert shop.drain() == {"default": [], "audit": []}
    assert shop.cancel(first)
    assert shop.cancel(last)
    if parked:
        assert shop.states()["audit"] == ["discarded", "scheduled", "discarded"]
    shop.drain()
    shop.let_time_pass()
    assert shop.drain() == {"default": [1], "audit": [1]}
    assert shop.states() == {"default": ["discarded"] * 2, "audit": ["discarded"] * 2}


def test_a_cancelled_event_that_is_already_due_when_it_is_first_read_does_not_run_either(shop: Shop) -> None:
    """No worker has parked it before its time."""
    cancelled = shop.publish(0, aggregate_id="k")
    shop.publish(1, aggregate_id="k")
    assert shop.cancel(cancelled)
    shop.let_time_pass()
    shop.conn.execute("vacuum (freeze) partbox.record")  # which forgets who had locked it
    assert shop.drain() == {"default": [1], "audit": [1]}
    assert shop.states() == {"default": ["discarded"], "audit": ["discarded"]}


def test_an_event_that_is_cancelled_twice_is_cancelled_once_and_in_time(shop: Shop) -> None:
    event_id = shop.publish(0)
    assert shop.cancel(event_id)
    assert shop.cancel(event_id)
    shop.drain()
    assert shop.cancel(str(event_id))
    assert [(each.action, each.count) for each in shop.outbox.actions.list(action="cancel")] == [("cancel", 1)]


def test_a_rollback_undoes_a_cancellation_and_so_does_a_rollback_to_a_savepoint(shop: Shop) -> None:
    whole, savepoint = shop.publish("whole"), shop.publish("savepoint")
    with shop.conn.transaction(force_rollback=True):
        assert shop.outbox.cancel(shop.conn, whole)
    with shop.conn.transaction(), shop.conn.transaction(force_rollback=True):
        assert shop.outbox.cancel(shop.conn, savepoint)
    assert shop.outbox.actions.list() == shop.outbox.actions.list(action="create")
    shop.let_time_pass()
    assert shop.drain() == {name: ["whole", "savepoint"] for name in shop.ran}


@pytest.mark.parametrize("read", ["before it is cancelled", "while it is", "when it is due"])
def test_an_event_waits_while_an_open_transaction_is_about_to_cancel_it(
    shop: Shop, app: Connection[Any], read: str
) -> None:
    """Its time comes meanwhile: it neither runs nor is given up before that has ended."""
    commits, rolls_back = shop.publish(0, SOON), shop.publish(1, SOON)
    now = shop.publish(2, None)
    if read == "before it is cancelled":
        shop.drain()
    with psycopg.connect(shop.outbox.dsn) as other:
        assert shop.outbox.cancel(app, commits)
        assert shop.outbox.cancel(other, rolls_back)
        if read == "while it is":
            shop.drain()
        shop.wait_for(rolls_back)
        assert shop.drain() == {"default": [2], "audit": [2]}
        assert shop.states() == {"default": ["scheduled"] * 2, "audit": ["scheduled"] * 2}
        app.commit()
        assert shop.drain() == {"default": [2], "audit": [2]}
        assert shop.states() == {"default": ["discarded", "scheduled"], "audit": ["discarded", "scheduled"]}
        other.rollback()
    assert shop.drain() == {"default": [2, 1], "audit": [2, 1]}
    assert shop.states() == {"default": ["discarded"], "audit": ["discarded"]}
    assert [shop.cancel(each) for each in (commits, rolls_back, now)] == [False, False, False]


def test_a_cancellation_is_too_late_once_the_event_is_due(shop: Shop) -> None:
    """Also where nobody has run it yet: somebody may have read it."""
    waits, now, done = (
        shop.publish(0),
        shop.publish(1, None),
        shop.publish(2, occurred_at=DUE, available_at=DUE, deliver_after=None),
    )
    assert [shop.cancel(each) for each in (now, done)] == [False, False]
    shop.let_time_pass()
    assert [shop.cancel(each) for each in (waits, now, done)] == [False, False, False]
    assert shop.drain() == {"default": [0, 1, 2], "audit": [0, 1, 2]}
    assert [shop.cancel(each) for each in (waits, now, done)] == [False, False, False]
    assert shop.conn.execute("select count(*) from partbox.cancellation").fetchone() == (0,)


def test_a_cancellation_is_too_late_if_the_event_became_due_while_its_transaction_was_open(
    shop: Shop, app: Connection[Any]
) -> None:
    app.execute("select")
    event_id = shop.publish(0, timedelta(milliseconds=1))
    shop.wait_for(event_id)
    assert shop.drain() == {"default": [0], "audit": [0]}
    shop.conn.execute("delete from partbox.subscription")  # so that nothing but the clock can tell
    assert not shop.outbox.cancel(app, event_id)


@pytest.mark.parametrize("became", ["done", "retrying", "dead"])
def test_a_cancellation_is_too_late_if_a_handler_has_run_the_event_whatever_the_clock_says(
    shop: Shop, became: str
) -> None:
    """Such as that of a standby that took over, and is behind."""
    for name in shop.ran if became != "done" else ():
        shop.outbox.on("Failing", subscription=name, max_attempts=1 if became == "dead" else 9)(lambda _: 1 / 0)
    with shop.conn.transaction():
        event_id = shop.outbox.publish(shop.conn, "Failing", 0, occurred_at=DUE, available_at=DUE)
    shop.drain()
    shop.conn.execute("update partbox.record set available_at = clock_timestamp() + interval '1 hour'")
    assert not shop.cancel(event_id)
    assert shop.conn.execute("select count(*) from partbox.cancellation").fetchone() == (0,)


def test_a_cancelled_event_runs_neither_in_a_later_subscription_nor_in_a_replayed_one(shop: Shop) -> None:
    cancelled = shop.publish(0)
    shop.publish(1)
    shop.drain()
    assert shop.cancel(cancelled)
    shop.let_time_pass()
    shop.drain()
    assert shop.outbox.subscriptions.replay("audit", from_id=1)
    shop.outbox.subscriptions.create("late")
    shop.ran["late"] = []
    shop.outbox.on("*", subscription="late")(lambda event: shop.ran["late"].append(event.payload))
    assert shop.drain() == {"default": [1], "audit": [1, 1], "late": [1]}


def test_a_cancelled_event_that_comes_late_in_a_copy_of_the_outbox_does_not_run_either(shop: Shop) -> None:
    """Its transaction had not committed when the cursor was saved, so `rebase` parks it."""
    cancelled, _ = shop.publish(0), shop.publish(1)
    assert shop.cancel(cancelled)
    shop.let_time_pass()
    shop.conn.execute("update partbox.partition set last_id = 1000, floor_id = 0")
    assert [each.parked for each in shop.outbox.rebase(force=True).subscriptions] == [2, 2]
    assert shop.drain() == {"default": [1], "audit": [1]}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("made", ["just now", "an hour ago", "in a year", "elsewhere"])
def test_an_event_can_be_cancelled_whatever_its_id_is(shop: Shop, made: str, read: bool) -> None:
    """An id of ours says when the event was made; others say nothing."""
    moment = {"an hour ago": datetime.now(UTC) - HOUR, "in a year": datetime.now(UTC) + 365 * 24 * HOUR}.get(made)
    given = uuid4() if made == "elsewhere" else None
    if moment is not None:
        given = UUID(int=(int(moment.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62) | 42)
    cancelled, _ = shop.publish(0, event_id=given), shop.publish(1)
    if read:
        shop.drain()
    assert shop.cancel(cancelled)
    assert shop.cancel(cancelled)
    shop.let_time_pass()
    assert shop.drain() == {"default": [1], "audit": [1]}


def test_a_cancellation_names_the_event_itself_its_id_or_its_key(shop: Shop) -> None:
    event = Event("Reminder", 0, deliver_after=HOUR)
    with shop.conn.transaction():
        shop.outbox.publish_many(shop.conn, [event, Event("Reminder", 1, deliver_after=HOUR, idempotency_key="k 1")])
        assert shop.outbox.cancel(shop.conn, event)
    assert shop.cancel(event.event_id.hex)
    assert shop.cancel(key="k 1")
    assert not shop.cancel(key="k 2")
    assert not shop.cancel(uuid4())
    shop.let_time_pass()
    assert shop.drain() == {"default": [], "audit": []}


def test_records_of_one_event_are_cancelled_together_or_not_at_all(shop: Shop) -> None:
    event_id = uuid4()
    shop.publish("first", event_id=event_id)
    shop.publish("second", event_id=event_id)
    assert shop.cancel(event_id)
    shop.publish("third", event_id=event_id, occurred_at=DUE, available_at=DUE, deliver_after=None)
    shop.conn.execute("delete from partbox.cancellation")
    assert not shop.cancel(event_id)
    assert shop.conn.execute("select count(*) from partbox.cancellation").fetchone() == (0,)


def test_no_other_work_waits_for_a_transaction_that_is_about_to_cancel(shop: Shop, app: Connection[Any]) -> None:
    """Neither who saves, nor who reads and runs other events, nor who retires others that were cancelled."""
    held, cancelled = shop.publish("held"), shop.publish("cancelled")
    shop.drain()
    assert shop.outbox.cancel(app, held)
    assert shop.cancel(cancelled)
    shop.publish("now", None)
    shop.publish("later", timedelta(milliseconds=1))
    assert shop.drain() == {name: ["now", "later"] for name in shop.ran}
    app.rollback()


def test_a_cancellation_that_waited_for_a_rolled_back_one_is_too_late_if_the_event_is_due(
    shop: Shop, app: Connection[Any]
) -> None:
    event_id = shop.publish(0, SOON)
    assert shop.outbox.cancel(app, event_id)
    waits = "select count(*) from pg_stat_activity where application_name = 'second' and wait_event_type = 'Lock'"
    with psycopg.connect(shop.outbox.dsn, application_name="second") as second, ThreadPoolExecutor(1) as pool:
        told = pool.submit(shop.outbox.cancel, second, event_id)
        eventually(lambda: shop.conn.execute(waits).fetchone() == (1,))
        shop.wait_for(event_id)
        app.rollback()
        assert not told.result()
        second.commit()
    assert shop.drain() == {"default": [0], "audit": [0]}


def test_a_cancellation_in_a_repeatable_read_transaction_succeeds_or_is_refused(
    shop: Shop, app: Connection[Any]
) -> None:
    """REPEATABLE READ: it does not see what was parked or cancelled since it began."""
    app.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    mine, theirs = shop.publish(0), shop.publish(1)
    app.execute("select from partbox.record")
    shop.drain()
    assert shop.cancel(theirs)
    assert shop.outbox.cancel(app, mine)
    with pytest.raises(psycopg.errors.SerializationFailure):
        shop.outbox.cancel(app, theirs)
    app.rollback()
    assert shop.outbox.cancel(app, mine)
    app.commit()
    shop.let_time_pass()
    assert shop.drain() == {"default": [], "audit": []}
