"""The log says when the server's history went back: it has forgotten a heartbeat that it had confirmed."""

import os

import pytest

from partbox.settings import load
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.worker.slot import Slot

HEARTBEAT = "select heartbeat_at from partbox.instance where instance_id = %s"


@pytest.mark.parametrize("processes", [1, 3])
def test_a_heartbeat_that_the_database_has_lost_is_logged_once(dsn, conn, caplog, processes):
    membership = Membership(load(dsn=dsn), "default", lambda: dsn)
    wards = [RegisteredProcess(Slot.create_local(), os.getpid() + number) for number in range(processes)]
    membership.open()
    try:
        membership.tick(wards)
        ids = [ward.slot.instance for ward in wards]
        membership.tick(wards)
        (confirmed,) = conn.execute(HEARTBEAT, ids[-1:]).fetchone()
        membership.tick(wards)
        conn.execute("update partbox.instance set heartbeat_at = %s where instance_id = %s", [confirmed, ids[-1]])
        assert told(caplog) == 0
        for _ in range(3):
            membership.tick(wards)
        assert told(caplog) == 1
        assert [ward.slot.instance for ward in wards] == ids
    finally:
        membership.close()


def told(caplog):
    return sum(getattr(each, "event", "") == "partbox.history_went_back" for each in caplog.records)
