"""Cancelling delayed events: who may, what is refused, and what is told of it."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from cancelling import Shop, app, shop
from roles import cast_of

from partbox import Outbox
from partbox.errors import PublishError, SchemaError

__all__ = ["app", "shop"]


@pytest.mark.parametrize(
    ("named", "error", "text"),
    [
        ({}, PublishError, "by its id or by its idempotency key: give one of them"),
        ({"event": uuid4(), "key": "k"}, PublishError, "by its id or by its idempotency key: give one of them"),
        ({"event": "42"}, PublishError, "event_id '42' is a str and no UUID"),
        ({"key": "a\0b"}, PublishError, "key 'a.x00b' "),
    ],
)
def test_a_cancellation_that_names_no_event_is_refused(
    shop: Shop, named: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        shop.cancel(**named)


def test_cancelling_outside_a_transaction_is_refused_as_publishing_is(shop: Shop) -> None:
    with pytest.raises(PublishError, match="there is no transaction"):
        shop.outbox.cancel(shop.conn, uuid4())


def test_cancelling_in_a_schema_without_the_function_names_the_remedy(shop: Shop) -> None:
    shop.conn.execute("drop function partbox.cancel")
    with pytest.raises(SchemaError, match="cannot cancel events in this database: run `partbox migrate`"):
        shop.cancel(uuid4())


@pytest.mark.parametrize("table", ["cancellation", "action"])
def test_an_event_is_not_cancelled_if_a_trigger_keeps_the_cancellation_from_being_stored(
    shop: Shop, table: str
) -> None:
    """Else an event that was told to be cancelled would run, or be cancelled by nobody."""
    event_id = shop.publish(0)
    shop.conn.execute("create function drops() returns trigger language plpgsql as $$ begin return null; end $$")
    shop.conn.execute(f"create trigger drops before insert on partbox.{table} for each row execute function drops()")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"keeps rows of table {table} as they are"):
        shop.cancel(event_id)
    shop.let_time_pass()
    assert shop.drain() == {"default": [0], "audit": [0]}


@pytest.mark.parametrize("read", [False, True])
def test_a_cancelled_event_does_not_run_if_a_trigger_keeps_its_parked_row_as_it_is(shop: Shop, read: bool) -> None:
    event_id = shop.publish(0)
    if read:
        shop.drain()
    shop.conn.execute("create function keeps() returns trigger language plpgsql as $$ begin return null; end $$")
    shop.conn.execute("create trigger keeps before update on partbox.parked for each row execute function keeps()")
    assert shop.cancel(event_id)
    if not read:
        shop.drain()
    shop.conn.execute("alter table partbox.parked disable trigger keeps")
    shop.let_time_pass()
    shop.conn.execute("alter table partbox.parked enable trigger keeps")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="keeps rows of table parked as they are"):
        shop.drain()
    assert shop.ran == {"default": [], "audit": []}


def test_any_language_cancels_from_sql(shop: Shop) -> None:
    event_id = shop.publish(0, idempotency_key="k")
    assert shop.conn.execute("select partbox.cancel(%s)", [event_id]).fetchone() == (True,)
    assert shop.conn.execute("select partbox.cancel(key => 'k')").fetchone() == (True,)
    assert shop.conn.execute("select partbox.cancel(%s)", [uuid4()]).fetchone() == (False,)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="give one of them"):
        shop.conn.execute("select partbox.cancel()")


def test_a_publisher_may_cancel_without_seeing_more_of_the_log(shop: Shop) -> None:
    with cast_of(shop.outbox.dsn) as cast:
        for role, waits in (("publisher", shop.publish(0)), ("worker", shop.publish(1))):
            with psycopg.connect(cast.of(role)) as own, shop.outbox.acting_as("alice"):
                assert shop.outbox.cancel(own, waits)
                own.commit()
                found = shop.outbox.records.find(event=waits).records[0].standings[0].history
                assert [(each.outcome, each.who) for each in found] == [("cancelled", f"alice as {own.info.user}")]
        with psycopg.connect(cast.of("publisher")) as own, pytest.raises(psycopg.errors.InsufficientPrivilege):
            own.execute("select from partbox.cancellation")
        with psycopg.connect(cast.of("worker")) as own:
            Outbox(cast.of("worker")).purge()
            own.execute("select partbox.may_start('default', '{1}')")


def test_the_standing_of_an_event_shows_who_cancelled_it_and_when(shop: Shop) -> None:
    event_id = shop.publish(0)
    shop.drain()
    with shop.outbox.acting_as("alice"):
        assert shop.cancel(event_id)
    for standing in shop.outbox.records.find(event=event_id).records[0].standings:
        (entry,) = standing.history
        assert (standing.state, standing.since) == ("cancelled", entry.at)
        assert (entry.outcome, entry.who) == ("cancelled", "alice as postgres")
    assert [each.event_id for each in shop.outbox.records.find(ended="cancelled").records] == [event_id]
    assert shop.outbox.records.find(ended="discarded").records == ()
    (act,) = shop.outbox.actions.list(action="cancel")
    assert (act.who, act.target, act.count) == ("alice as postgres", {"record_ids": [1]}, 1)
    assert shop.conn.execute("select count(*) from partbox.delivery").fetchone() == (0,)
    assert {row.parked.get("discarded") for row in map(shop.outbox.stats.cluster, shop.ran)} == {1}


@pytest.mark.parametrize("read", [False, True])
def test_a_cancelled_event_is_shown_as_cancelled_before_any_subscription_has_read_it(shop: Shop, read: bool) -> None:
    event_id = shop.publish(0)
    assert shop.cancel(event_id)
    if read:  # and parked, as no worker knew that it was cancelled
        shop.drain()
        assert shop.states() == {"default": ["scheduled"], "audit": ["scheduled"]}
    standings = shop.outbox.records.find(event=event_id).records[0].standings
    assert [each.state for each in standings] == ["cancelled", "cancelled"]


def test_a_cancellation_is_purged_together_with_its_record(shop: Shop) -> None:
    cancelled, waits = shop.publish(0), shop.publish(1)
    shop.drain()
    assert shop.cancel(cancelled)
    shop.drain()
    shop.conn.execute("update partbox.record set created_at = created_at - interval '10 years'")
    purged = shop.outbox.purge()
    assert (purged.records, purged.history) == (1, 1)
    assert shop.conn.execute("select count(*) from partbox.cancellation").fetchone() == (0,)
    assert shop.conn.execute("select event_id from partbox.record").fetchall() == [(waits,)]
