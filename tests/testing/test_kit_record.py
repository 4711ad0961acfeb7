"""`kit.record`: a record in any state, as if a worker or an operator had left it there."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from partbox import Event, PartboxError
from partbox.testing import Kit

STATES = ("pending", "done", "retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded")


def event(payload: Any = 1, key: str | None = "7", **fields: Any) -> Event:
    aggregate: Any = {} if key is None else {"aggregate_type": "Order", "aggregate_id": key}
    return Event("Noted", payload, **aggregate, **fields)


def status(conn: psycopg.Connection[Any], record_id: int) -> tuple[Any, ...]:
    asked = (
        "select s.status, k.blocks, k.attempts from partbox.record_status s left join partbox.parked k"
        " on k.record_id = s.id and k.subscription = s.subscription where s.id = %s"
    )
    (row,) = conn.execute(asked, [record_id]).fetchall()
    return row


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("key", ["7", None])
def test_a_planted_record_has_the_requested_state_and_a_worker_treats_it_accordingly(
    kit: Kit, shop: Any, conn: Any, state: Any, key: str | None
):
    blocks = key is not None and state in ("retrying", "deferred", "held", "ready")
    record_id = kit.record(event(key=key), state=state)
    attempts = int(state in ("retrying", "dead", "discarded"))
    parked = (None, None) if state in ("pending", "done") else (blocks, attempts)
    assert status(conn, record_id) == (state, *parked)
    delivered = state not in ("done", "dead", "discarded")
    assert kit.drain().states == ["done"] * delivered
    assert status(conn, record_id)[0] == ("done" if delivered else state)


def test_a_record_planted_as_done_does_not_make_earlier_ones_done(kit: Kit, shop: Any):
    """All are of one partition, for they have one key."""
    kit.record(event(1), state="pending")
    kit.record(event(2, available_at=datetime.now(UTC) + timedelta(hours=1)), state="pending")
    kit.record(event(3), state="done")
    kit.record(event(4), state="pending")
    assert kit.drain().states == ["done", "done"]
    kit.advance("2h")
    kit.drain().assert_done()
    assert shop.seen == [1, 4, 2]


def test_an_event_that_commits_after_a_done_record_with_a_higher_id_is_still_delivered(kit: Kit, shop: Any, dsn: str):
    with psycopg.connect(dsn) as late:
        shop.outbox.publish(late, event(1))
        kit.record(event(2), state="done")
        kit.drain()
        late.commit()
    kit.drain()
    assert shop.seen == [1]


def test_a_due_time_may_be_a_duration_or_a_point_in_time(kit: Kit, shop: Any):
    kit.record(event(1, "a"), state="retrying", attempts=2, due="1h")
    kit.record(event(2, "b"), state="deferred", due=timedelta(hours=1))
    kit.record(event(3, "c"), state="scheduled", due=datetime.now(UTC) + timedelta(hours=1))
    assert kit.drain() == []
    kit.advance("61m")
    kit.drain().assert_done()
    assert sorted(shop.seen) == [1, 2, 3]


def test_a_planted_record_has_the_given_attempts_and_error(kit: Kit, shop: Any):
    kit.record(Event("Failing", 1, aggregate_id="7"), state="retrying", attempts=2)
    (failed,) = kit.drain()
    assert (failed.state, failed.attempts) == ("dead", 3)
    kit.record(event(2, "8"), state="dead", attempts=9, error="ValueError: no mailbox")
    dead = {each.attempts: each.error for each in kit.outbox.dead.list()}
    assert dead == {3: "no 1", 9: "no mailbox"}


def test_a_planted_dead_record_with_a_due_time_is_passed_to_the_dead_letter_hook(kit: Kit, shop: Any):
    letters: list[Any] = []
    kit.outbox.on_dead_letter(lambda event, error: letters.append((event.payload, event.attempt, error)))
    kit.record(event(1), state="dead", attempts=5, due=0, error="gone")
    kit.record(event(2), state="dead", attempts=5)
    kit.drain()
    assert letters == [(1, 5, "gone")]


def test_a_planted_record_of_a_handler_that_continues_on_failure_blocks_nothing(kit: Kit, shop: Any, conn: Any):
    kit.outbox.register(shop.note, "Free", on_failure="continue", on_dead="block")
    failed = kit.record(Event("Free", 1, aggregate_id="7"), state="retrying")
    dead = kit.record(Event("Free", 2, aggregate_id="8"), state="dead")
    assert (status(conn, failed)[1], status(conn, dead)[1]) == (False, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"state": "lost"}, "state 'lost' must be one of pending, done, retrying"),
        ({"state": "done", "attempts": 1}, "a record that is done has no attempts"),
        ({"due": "1h"}, "a record that is pending has no"),
        ({"state": "held", "due": 1}, "a record that is held has no due time"),
        ({"state": "dead", "subscription": "audit"}, "there is no subscription 'audit'"),
        ({"state": "dead", "subscription": 7}, "subscription 7 is a int, not a str: convert it"),
        ({"attempts": -1}, "attempts = -1 must be a whole number from 0 to 2147483647"),
        ({"state": "dead", "attempts": 2**31}, "attempts = 2147483648 must be a whole number"),
        ({"state": "dead", "attempts": "1"}, "attempts = '1' must be a whole number"),
        ({"state": "retrying", "due": -1}, "due: -1 is no delay: give seconds"),
        ({"state": "dead", "error": 7}, "error 7 is a int, not a str: convert it"),
        ({"state": "dead", "error": "\0"}, "error .* holds a NUL character"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(kit: Kit, given: dict[str, Any], said: str):
    with pytest.raises(PartboxError, match=said):
        kit.record(event(), **given)
    if "there is no" not in said:
        assert not kit.published()


def test_planting_a_record_is_refused_while_a_worker_runs(kit: Kit, conn: Any):
    conn.execute("update partbox.partition set owner = gen_random_uuid()")
    with pytest.raises(PartboxError, match="a worker delivers from this database"):
        kit.record(event(), state="dead")
