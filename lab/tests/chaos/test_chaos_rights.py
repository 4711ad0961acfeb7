"""What is taken from the nodes' role for a while, and the queue of notifications that is full for a while."""

from types import SimpleNamespace

import psycopg
import pytest
from forked_commands import forks
from psycopg.conninfo import make_conninfo
from test_chaos_command import chaos, ended, make_open_folder

from partbox_lab.chaos import statements
from partbox_lab.chaos.capabilities import Capabilities
from partbox_lab.chaos.deferred_undo import DeferredUndo
from partbox_lab.chaos.rights import FAULTS, PRIVILEGES, TABLES, Rights
from partbox_lab.chaos.schedule import ScheduledFault

__all__ = ["chaos", "forks", "make_open_folder"]


@pytest.fixture
def place(own_server, tmp_path):
    """On a server of its own: the role is the server's."""

    def connect(role):
        return psycopg.connect(make_conninfo(own_server.dsn, application_name=f"chaos {role}"), autocommit=True)

    return SimpleNamespace(
        dsn=own_server.dsn, schema="partbox", folder=tmp_path, connect=connect, named=lambda role: f"chaos {role}"
    )


def rights(conn: psycopg.Connection) -> list[tuple]:
    """The nodes' privileges, and the tables whose rows are hidden."""
    return conn.execute(
        "select relname, relacl::text, relrowsecurity from pg_class"
        " where relnamespace = 'partbox'::regnamespace order by 1"
    ).fetchall()


def test_each_privilege_is_revoked_and_granted_again(place):
    with place.connect("test") as conn:
        statements.make_role(place.dsn, conn, "partbox")
        before = rights(conn)
        for fault, count in (("take-privilege", len(PRIVILEGES)), ("row-security", len(TABLES))):
            for number in range(count):
                undo, disturbances = DeferredUndo(), []
                step = ScheduledFault(1.0, fault, 60.0, 0.0, (number + 0.5) / count)
                assert FAULTS[fault](Rights(place, undo, disturbances), step), number
                assert rights(conn) != before, number
                undo.finish()
                assert [(each.cause, each.hinders) for each in disturbances] == [(fault, True)]
                assert {"".join(sorted(str(row))) for row in rights(conn)} == {
                    "".join(sorted(str(row))) for row in before
                }


def test_nodes_on_a_users_database_keep_their_privileges(dsn, tmp_path):
    place = SimpleNamespace(
        dsn=dsn, schema="partbox", folder=tmp_path, server=None, connect=lambda _: psycopg.connect(dsn)
    )
    capabilities = Capabilities(place, list(FAULTS), SimpleNamespace(disk=None, lacking=None))
    assert capabilities.faults == ()
    assert "--embedded" in capabilities.skipped["row-security"]
    assert capabilities.route.user is None


def test_a_full_queue_is_emptied_also_if_the_server_has_ended_the_session_that_held_it_up(place, own_server):
    with place.connect("test") as conn:
        if conn.info.server_version < statements.QUEUED:
            pytest.skip("the size of the notification queue is fixed before PostgreSQL 17")
        statements.small_queue(conn, "partbox")
    own_server.server.stop()
    own_server.server.start()
    undo = DeferredUndo()
    assert Rights(place, undo, []).fill(ScheduledFault(1.0, "notify-full", 60.0, 0.0, 0.0))
    with place.connect("test") as conn:
        assert conn.execute("select pg_notification_queue_usage() > 0.9").fetchone() == (True,)
        for pid in statements.sessions(conn, "partbox", "chaos chaos"):
            statements.cut(conn, "partbox", pid)
    undo.finish()


@pytest.mark.thorough
@pytest.mark.parametrize("faults", [("take-privilege", "row-security"), ("no-reconnect", "notify-full")])
def test_a_short_run_of_faults_of_privileges_alone_keeps_every_promise(chaos, faults):
    size = ("--seconds", "6", "--seed", "11", "--nodes", "2", "--processes", "1")
    report = ended(chaos("--embedded", *size, "--faults", ",".join(faults), "--json"))
    assert set(report["skipped"]) <= {"notify-full"}  # before PostgreSQL 17
    assert report["published"] > 50
    assert set(report["faults"]) == set(faults) - set(report["skipped"])
