"""A subscription that begins, or is set back, beside a transaction open for long: nothing is lost, nothing waits.

The range searched for late records is cut after a stretch of ids, which is small here.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
import pytest
from owner import Owner, write

from partbox import Outbox
from partbox.protocol import cursor as cursor_rules

Conn = psycopg.Connection[Any]
Making = Callable[..., Owner]
MANY = 60
"""Records, several stretches of them."""


@pytest.fixture(autouse=True)
def _small_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_rules, "STRETCH", 20)


def clock(conn: Conn) -> datetime:
    ((now,),) = conn.execute("select clock_timestamp()").fetchall()
    return now


def create(dsn: str, conn: Conn, start: str | datetime) -> None:
    """The default subscription anew, so that a owner may own it."""
    conn.execute("delete from partbox.partition")
    conn.execute("delete from partbox.subscription")
    Outbox(dsn).subscriptions.create("default", start=start)


def delivered(owner: Owner) -> list[int]:
    """Read what there is, finish and save it: the ids."""
    ids = owner.read_all()
    owner.done(*ids)
    owner.save()
    return ids


def test_a_subscription_that_starts_at_a_time_gets_events_created_from_then_on(
    dsn: str, conn: Conn, owner_with: Making
) -> None:
    with psycopg.connect(dsn) as late:
        write(late)  # 1
        write(conn, MANY)  # to 61
        then = clock(conn)
        write(conn, MANY)  # to 121
        create(dsn, conn, then)
        owner = owner_with()
        assert delivered(owner) == list(range(MANY + 2, 2 * MANY + 2))
        write(conn, 2)
        assert delivered(owner) == [2 * MANY + 2, 2 * MANY + 3]
        write(late)
        late.commit()
    assert sorted(delivered(owner)) == [1, 2 * MANY + 4]


def test_a_subscription_that_starts_at_the_beginning_gets_every_event(dsn: str, conn: Conn, owner_with: Making) -> None:
    with psycopg.connect(dsn) as late:
        write(late)
        write(conn, MANY)
        create(dsn, conn, "beginning")
        owner = owner_with()
        assert delivered(owner) == list(range(2, MANY + 2))
        late.commit()
    assert delivered(owner) == [1]


def test_a_subscription_that_starts_now_gets_new_events_when_no_other_has_saved_a_floor(
    dsn: str, conn: Conn, owner_with: Making
) -> None:
    """If no other subscription has saved a floor, the late search begins at the beginning of the log."""
    with psycopg.connect(dsn) as late:
        write(late)
        write(conn, 5 * MANY)
        create(dsn, conn, "now")
        owner = owner_with()
        write(conn, 2)
        assert delivered(owner) == [5 * MANY + 2, 5 * MANY + 3]
        late.commit()
    assert delivered(owner) == [1]


@pytest.mark.parametrize("by", ["id", "time"])
def test_a_subscription_that_is_set_back_gets_the_following_events_again_and_the_late_ones(
    dsn: str, conn: Conn, owner_with: Making, by: str
) -> None:
    before = owner_with()
    with psycopg.connect(dsn) as late:
        write(late)
        write(conn, MANY)
        then = clock(conn)
        write(conn, MANY)
        assert len(delivered(before)) == 2 * MANY
        conn.execute("update partbox.partition set owner = null, assignee = null")
        conn.execute("delete from partbox.instance")
        subscriptions = Outbox(dsn).subscriptions
        if by == "id":
            subscriptions.replay("default", from_id=MANY + 2)
        else:
            subscriptions.replay("default", from_time=then)
        heir = owner_with()
        assert delivered(heir) == list(range(MANY + 2, 2 * MANY + 2))
        write(conn, 2)
        assert delivered(heir) == [2 * MANY + 2, 2 * MANY + 3]
        late.commit()
    assert delivered(heir) == [1]
