"""The log says when the server's history went back: it has forgotten a heartbeat that it had confirmed."""

import os

import pytest

from partbox.settings import load
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.worker.slot import Slot


@pytest.mark.parametrize("processes", [1, 3])
def test_a_heartbeat_that_the_database_has_forgotten_is_told_once(dsn, conn, caplog, processes):
    membership = Membership(load(dsn=dsn), "default", lambda: dsn)
    wards = [RegisteredProcess(Slot.local(), os.getpid() + number) for number in range(processes)]
    membership.open()
    try:
        for _ in range(3):
            membership.tick(wards)
        ids = [ward.slot.instance for ward in wards]
        conn.execute(
            "update partbox.instance set heartbeat_at = heartbeat_at - interval '1 ms' where instance_id = %s", ids[-1:]
        )
        assert told(caplog) == 0
        for _ in range(3):
            membership.tick(wards)
        assert told(caplog) == 1
        assert [ward.slot.instance for ward in wards] == ids
    finally:
        membership.close()


def told(caplog):
    return sum(getattr(each, "event", "") == "partbox.history_went_back" for each in caplog.records)
