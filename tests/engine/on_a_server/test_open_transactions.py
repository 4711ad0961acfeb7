"""A transaction that stays open, anywhere in the database, delays nothing, however many ids are drawn meanwhile.

The range searched for late records is cut after a stretch of ids, which is small here. See the scenarios
`open_transaction` and `open_transactions` for what needs no server.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def left_open(dsn: str) -> Iterator[Conn]:
    """A transaction that has written to a table of the application's, and stays open."""
    with psycopg.connect(dsn) as conn:
        conn.execute("create table if not exists unrelated (n int)")
        conn.commit()
        conn.execute("insert into unrelated values (1)")
        yield conn
        conn.rollback()


def delivered(owner: Owner) -> None:
    """Read what there is, finish and save it."""
    owner.done(*owner.read_all())
    owner.save()


@pytest.mark.parametrize("beside", [True, False])
def test_after_a_jump_of_the_sequence_and_a_restart_new_records_are_read(
    dsn: str, conn: Conn, owner_with: Making, beside: bool
) -> None:
    owner = owner_with()
    with left_open(dsn) as other:
        if not beside:
            other.rollback()
        write(conn, 5)
        delivered(owner)
        conn.execute("select setval('partbox.record_id_seq', 4 * %s)", [MANY])
        write(conn, 2)
        delivered(owner)
        heir = owner_with()
        write(conn, 2)
        assert heir.read_all() == [4 * MANY + 3, 4 * MANY + 4]


def test_a_prepared_transaction_that_nobody_ends_delays_no_record(dsn: str, conn: Conn, owner_with: Making) -> None:
    before = owner_with()
    orphan = conn.info.dbname
    with psycopg.connect(dsn) as other:
        write(other)
        other.execute(f"prepare transaction '{orphan}'")
    try:
        write(conn, MANY)
        delivered(before)
        heir = owner_with()
        write(conn, 2)
        assert heir.read_all() == [MANY + 2, MANY + 3]
        conn.execute(f"commit prepared '{orphan}'")
        orphan = ""
        assert heir.read_all() == [1], "late, and found all the same"
    finally:
        if orphan:
            conn.execute(f"rollback prepared '{orphan}'")


def test_a_subscription_created_from_now_on_beside_an_open_transaction_gets_new_records(
    dsn: str, conn: Conn, owner_with: Making
) -> None:
    before = owner_with()
    with psycopg.connect(dsn) as late:
        write(late)
        write(conn, MANY)
        delivered(before)
        conn.execute("delete from partbox.partition")
        conn.execute("delete from partbox.subscription")
        Outbox(dsn).subscriptions.create("default", start="now")
        heir = owner_with()
        write(conn, 2)
        assert heir.read_all() == [MANY + 2, MANY + 3]
        late.commit()
    assert heir.read_all() == [1], "it was published before, and committed after"
