"""Blocked keys: who blocks them, and what `retry now` and `skip` change."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from ownership import ALL, assign, claim, join

from partbox import Outbox
from partbox.errors import PartboxError, SchemaError


def test_a_blocked_key_is_shown_with_its_head_its_followers_and_its_owner(plant, outbox, conn):
    head = plant.park("a", "retrying", blocks=True, due=30, attempts=2, age=600, error="TimeoutError: slow")
    for _ in range(3):
        plant.park("a", "held", blocks=True, attempts=0, age=60, error=None)
    plant.park("a")
    plant.park("b", "retrying", due=5)
    older = plant.park("c", "deferred", blocks=True, due=5, age=7_200, error=None)
    (me,) = join(conn, node="n7")
    assign(conn, me, ALL)
    claim(conn, me)
    first, second = outbox.blocked.list()
    assert (first.aggregate_type, first.aggregate_id, first.record_id, first.followers) == ("Order", "c", older, 0)
    assert (first.error_type, first.error) == (None, None)
    assert (second.aggregate_id, second.record_id, second.event_id) == ("a", head, plant.event_id(head))
    assert (second.event_type, second.state, second.attempts, second.followers) == ("Placed", "retrying", 2, 3)
    assert (second.error_type, second.error) == ("TimeoutError", "slow")
    assert (second.owner, second.node, second.pid) == (me, "n7", 1)
    assert second.partition == plant.row(head)["partition"]
    now, near = datetime.now(UTC), timedelta(seconds=20)
    assert abs(second.due_at - now - timedelta(seconds=30)) <= near
    assert abs(now - second.blocked_since - timedelta(seconds=600)) <= near
    assert [key.aggregate_id for key in outbox.blocked.list(limit=1)] == ["c"]


def test_the_head_is_the_smallest_id_whatever_was_parked_first(plant, outbox):
    head = plant.park("a", "ready", blocks=True, age=1)
    plant.park("a", "held", blocks=True, age=600)
    (key,) = outbox.blocked.list()
    assert (key.record_id, key.state, key.due_at) == (head, "ready", None)
    assert datetime.now(UTC) - key.blocked_since > timedelta(seconds=500)
    assert (key.owner, key.node, key.pid) == (None, None, None)


@pytest.mark.parametrize("state", ["retrying", "deferred"])
def test_retry_now_makes_the_head_due_and_touches_no_other(plant, outbox, caplog, state):
    head = plant.park("a", state, blocks=True, due=3_600, attempts=4)
    other = plant.park("b", state, blocks=True, due=3_600, attempts=4)
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.blocked.retry_now("Order", "a") == (head, state, True)
    row = plant.row(head)
    assert (row["state"], row["is_due"], row["attempts"]) == (state, True, 4)
    assert not plant.row(other)["is_due"]
    assert plant.versions() == {row["partition"]: 1}
    assert (
        f"record {head}, which blocks 'Order' 'a' in subscription 'default', was {state} and will run now"
        in caplog.text
    )


def test_retry_now_replays_a_dead_head(plant, outbox):
    head = plant.park("a", blocks=True, due=0, started=True)
    assert outbox.blocked.retry_now("Order", "a") == (head, "dead", True)
    row = plant.row(head)
    assert (row["state"], row["blocks"], row["attempts"], row["due_at"]) == ("ready", True, 0, None)
    assert (row["started_at"], row["last_error"]) == (None, "ValueError: boom")
    assert plant.versions() == {row["partition"]: 1}


@pytest.mark.parametrize("state", ["held", "ready"])
def test_retry_now_has_nothing_to_do_for_a_head_without_a_due_time(plant, outbox, caplog, state):
    head = plant.park("a", state, blocks=True)
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.blocked.retry_now("Order", "a") == (head, state, False)
    assert plant.versions() == {}
    assert "as it would anyway: nothing was changed" in caplog.text


@pytest.mark.parametrize("state", ["retrying", "deferred", "held", "ready"])
def test_skip_makes_the_head_dead_and_lets_its_followers_go_on(plant, outbox, caplog, state):
    head = plant.park("a", state, blocks=True, due=3_600, attempts=4, age=7_200, started=True)
    follower = plant.park("a", "held", blocks=True, attempts=0)
    with caplog.at_level(logging.INFO, "partbox.commands"):
        assert outbox.blocked.skip("Order", "a", "ticket 7") == (head, state, True)
    row = plant.row(head)
    assert (row["state"], row["blocks"], row["attempts"], row["due_at"]) == ("dead", False, 4, None)
    assert (row["started_at"], row["last_error"]) == (None, "skipped: ticket 7; ValueError: boom")
    assert plant.versions() == {row["partition"]: 1}
    assert [(key.record_id, key.followers) for key in outbox.blocked.list()] == [(follower, 0)]
    (dead,) = outbox.dead.list()
    assert (dead.error_type, dead.error) == ("skipped", "ticket 7; ValueError: boom")
    assert datetime.now(UTC) - dead.died_at < timedelta(minutes=1)
    assert f"skipped record {head}, which blocked 'Order' 'a' in subscription 'default' and was {state}" in caplog.text
    assert outbox.dead.replay(head) == 1
    assert outbox.blocked.list()[0].record_id == head


def test_a_skipped_head_without_error_or_reason_has_the_error_skipped_by_hand(plant, outbox):
    head = plant.park("a", "held", blocks=True, error=None)
    outbox.blocked.skip("Order", "a")
    assert plant.row(head)["last_error"] == "skipped: by hand"


def test_an_error_with_the_reason_of_a_skip_before_it_stays_within_the_error_limit(plant, dsn):
    head = plant.park("a", "held", blocks=True, error="E: " + "x" * 50)
    Outbox(dsn, error_limit=30).blocked.skip("Order", "a", "because")
    assert plant.row(head)["last_error"] == "skipped: because; E: xxxxxxxxx"


def test_skip_of_a_dead_head_only_stops_it_from_blocking_and_its_hook_is_still_owed(plant, outbox):
    head = plant.park("a", blocks=True, due=0, age=7_200)
    plant.park("a", "held", blocks=True)
    before = plant.row(head)
    assert outbox.blocked.skip("Order", "a") == (head, "dead", True)
    after = plant.row(head)
    assert after == before | {"blocks": False}
    assert plant.versions() == {after["partition"]: 1}


def test_a_skip_touches_only_the_aggregate_of_exactly_that_type_and_id(plant, outbox):
    cart = plant.park("a", "retrying", blocks=True, due=60, aggregate_type="Cart")
    order = plant.park("a", "retrying", blocks=True, due=60)
    outbox.blocked.skip("Cart", "a")
    assert plant.states() == {cart: "dead", order: "retrying"}


def test_a_key_that_is_not_blocked_is_refused_by_name(plant, outbox):
    dead = plant.park("a")
    unblocking = plant.park("a", "retrying", due=60)
    for act in (outbox.blocked.retry_now, outbox.blocked.skip):
        with pytest.raises(PartboxError, match=r"'Order' / 'a' is not blocked in .*'default': `partbox blocked list`"):
            act("Order", "a")
        with pytest.raises(SchemaError, match="'audit' does not exist"):
            act("Order", "a", subscription="audit")
    assert (plant.states(), plant.versions()) == ({dead: "dead", unblocking: "retrying"}, {})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(("", "a"), "aggregate_type is empty"), (("Order", "a\0"), "NUL"), (("Order", 5.5), "not a str")],
)
def test_wrong_keys_and_limits_are_refused(outbox, arguments, why):
    for act in (outbox.blocked.retry_now, outbox.blocked.skip):
        with pytest.raises(PartboxError, match=why):
            act(*arguments)
    with pytest.raises(PartboxError, match=r"reason .* holds a NUL"):
        outbox.blocked.skip("Order", "a", "no\0")
    with pytest.raises(PartboxError, match="limit 0 must be"):
        outbox.blocked.list(limit=0)
    with pytest.raises(SchemaError, match="'audit' does not exist"):
        outbox.blocked.list(subscription="audit")
