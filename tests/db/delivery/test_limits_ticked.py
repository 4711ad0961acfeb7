"""Limits that operators set reach a process by the ticks that it sends anyway."""

from math import inf

import pytest
from ownership import SCHEMA, Conn, join, seize

from partbox import Outbox
from partbox.db.delivery import cursors
from partbox.db.delivery.cursors import TickResult
from partbox.protocol.limit_addresses import LimitAddress

DEFAULT = "default"
of = LimitAddress.of_handler


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


def test_a_tick_returns_the_limits_only_when_they_have_changed(conn: Conn, outbox: Outbox) -> None:
    (me,) = join(conn)
    seize(conn, me)

    def tick(known: int | None) -> TickResult:
        return cursors.run_tick(conn, SCHEMA, DEFAULT, me, [], known)

    first = tick(None)
    assert (first.limits, first.partitions is None) == ({}, False)
    assert tick(first.digest).partitions is None
    outbox.limits.set("charge", rate="3/s")
    outbox.limits.set("send", rate="none", at_once=2)
    second = tick(first.digest)
    assert second.limits == {of("charge"): (3.0, None), of("send"): (inf, 2.0)}
    assert tick(second.digest).partitions is None
    outbox.limits.set("charge", rate="4/s")
    third = tick(second.digest)
    assert third.limits[of("charge")] == (4.0, None)
    outbox.limits.reset("charge")
    outbox.limits.reset("send")
    last = tick(third.digest)
    assert (last.limits, last.partitions is None, last.digest) == ({}, False, first.digest)


def test_setting_the_same_number_for_another_bound_or_handler_changes_the_digest(conn: Conn, outbox: Outbox) -> None:
    (me,) = join(conn)
    seize(conn, me)
    digests = set()
    for handler, bounds in (("a", {"rate": "5/s"}), ("a", {"at_once": 5}), ("b", {"rate": "5/s"})):
        outbox.limits.set(handler, **bounds)
        digests.add(cursors.run_tick(conn, SCHEMA, DEFAULT, me, []).digest)
        outbox.limits.reset(handler)
    assert len(digests) == 3


def test_a_tick_ignores_the_limits_of_another_subscription(conn: Conn, outbox: Outbox) -> None:
    (me,) = join(conn)
    seize(conn, me)
    outbox.subscriptions.create("audit")
    before = cursors.run_tick(conn, SCHEMA, DEFAULT, me, [])
    outbox.limits.set("charge", rate="3/s", subscription="audit")
    assert cursors.run_tick(conn, SCHEMA, DEFAULT, me, [], before.digest).partitions is None


def test_the_check_of_a_calm_process_notices_changed_limits(conn: Conn, outbox: Outbox) -> None:
    (me,) = join(conn)
    seize(conn, me)
    before = cursors.run_tick(conn, SCHEMA, DEFAULT, me, [])
    assert before.digest is not None
    assert cursors.recheck_idle(conn, SCHEMA, DEFAULT, me, before.digest, before.idle_check) is not None
    outbox.limits.set("charge", rate="3/s")
    assert cursors.recheck_idle(conn, SCHEMA, DEFAULT, me, before.digest, before.idle_check) is None
