"""`partbox cancel`."""

import json
from uuid import uuid4

import pytest

from partbox import Outbox


@pytest.fixture
def outbox(dsn, monkeypatch) -> Outbox:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    return Outbox(dsn)


def test_a_delayed_event_is_cancelled_by_its_id_or_by_its_key(partbox, outbox, conn):
    with conn.transaction():
        event_id = outbox.publish(conn, "Reminder", 1, deliver_after=3_600)
        outbox.publish(conn, "Reminder", 2, deliver_after=3_600, idempotency_key="k")
    ran = partbox("cancel", str(event_id))
    assert (ran.code, ran.out, ran.err) == (0, f"cancelled {event_id}: it never runs\n", "")
    assert json.loads(partbox("cancel", "--key", "k", "--json").out) == {"cancelled": True}
    assert conn.execute("select record_id from partbox.cancellation order by 1").fetchall() == [(1,), (2,)]
    assert [line.split()[-4:] for line in partbox("find", str(event_id)).out.splitlines() if "cancelled by" in line]
    assert partbox("find", "--ended", "cancelled").out.count("Reminder") == 2


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ((str(uuid4()),), "is not cancelled: there is no such delayed event, or its time has come: `partbox find "),
        (("--key", "k"), "k is not cancelled: there is no such delayed event"),
        (("42",), "event_id '42' is a str and no UUID"),
        ((), "by its id or by its idempotency key: give one of them"),
    ],
)
def test_cancelling_an_event_that_cannot_be_cancelled_is_refused_in_one_line(partbox, outbox, conn, typed, error):
    ran = partbox("cancel", *typed)
    assert ran.code != 0
    assert error in ran.err
    assert ran.err.count("\n") == 1
    assert conn.execute("select count(*) from partbox.action").fetchone() == (0,)
