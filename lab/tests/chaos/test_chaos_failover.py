"""A standby that takes the place of the run's own server."""

from contextlib import nullcontext

import psycopg
import pytest
from forked_commands import forks
from test_chaos_command import chaos, ended, make_open_folder

from partbox_lab.chaos.failover import Failover
from partbox_lab.chaos.workspace import OPTIONS
from partbox_lab.workspace import workspace

__all__ = ["chaos", "forks", "make_open_folder"]


@pytest.fixture
def place(make_open_folder, monkeypatch):
    """With a server of its own, as a run has it; nothing of it is left."""
    monkeypatch.setattr("tempfile.tempdir", str(make_open_folder))
    with workspace(None, "partbox", program="chaos", options=OPTIONS) as made:
        yield made
    assert list(make_open_folder.iterdir()) == []


def test_a_standby_is_promoted_at_the_same_address_before_its_first_restartpoint(place):
    """Twice: the first server's `life` is readable, the second's is not up to 18.4, as no node has made it anew."""
    failover, records = Failover(place), "select count(*) from partbox.record"
    for published in (1, 2):
        with place.connect("test") as conn:
            conn.execute("select partbox.publish('Placed', json '1')")
        assert failover.happen(place.server)
        with place.connect("test") as conn:
            assert conn.execute(records).fetchone() == (published,)
            spoilt = pytest.raises(psycopg.errors.InternalError_, match="bad magic number")
            with spoilt if conn.info.server_version <= 180004 else nullcontext():
                conn.execute("select pg_sequence_last_value('partbox.life')")
    place.server.kill()
    place.server.start()
    with place.connect("test") as conn:
        assert conn.execute(records).fetchone() == (2,)


def test_a_standby_that_does_not_follow_changes_nothing(place, monkeypatch):
    monkeypatch.setattr("partbox_lab.chaos.failover.PATIENCE", 0.0)
    monkeypatch.setattr("partbox_lab.chaos.statements.replayed", lambda *_: False)
    server = place.server
    assert Failover(place).happen(server) is None
    assert place.server is server
    with place.connect("test") as conn:
        conn.execute("select partbox.publish('Placed', json '1')")
    assert not list(server.data_folder.glob("standby-*"))


@pytest.mark.thorough
def test_a_short_run_of_promotions_alone_keeps_every_promise(chaos):
    run = ("--seconds", "4", "--seed", "3", "--nodes", "1", "--processes", "1", "--faults", "promoted-standby")
    report = ended(chaos("--embedded", *run, "--json"))
    assert report["skipped"] == {}
    assert report["faults"]["promoted-standby"] > 0
    assert report["published"] > 50
