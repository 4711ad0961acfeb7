"""One node for several databases: each is named wherever it is spoken of, and none waits for another."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from forked_commands import forks
from node import PATIENCE, Node
from planted_records import Planter
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from scraping import Watched, publish, settled
from servers import execute, new_database
from waiting import eventually

from partbox import Outbox
from partbox.db.schema.migrate import migrate

__all__ = ["forks"]

FAST = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20}
HTTP = ["--http", ":0"]
CUT = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> %s"


@pytest.fixture
def start(cluster) -> Callable[..., Node]:
    """Starts a node of `metrics_app` with one process for each of these databases; it is ended with the test."""

    def start(*dsns: str, flags: list[str] = HTTP, **settings: Any) -> Node:
        flags = ["--processes", "1", *flags, *(part for dsn in dsns for part in ("--dsn", dsn))]
        node = Node("one", cluster.folder, cluster.journal.folder, flags, FAST | settings, "metrics_app:outbox")
        cluster.nodes.append(node)
        return node

    return start


@pytest.fixture
def second(server, template) -> Iterator[str]:
    """A second database with the schema, on the same server."""
    with new_database(server.dsn, template) as dsn:
        yield dsn


@pytest.fixture
def mute() -> Iterator[str]:
    """A DSN where somebody listens who never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"host=127.0.0.1 port={listening.getsockname()[1]} dbname=mute user=ada password=s3cret"


def name_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def said(node: Node, event: str, database: str | None = None) -> list[dict[str, Any]]:
    """The lines of a log in JSON by the name of what happened."""
    lines = [json.loads(line) for line in node.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == f"partbox.{event}" and database in (None, line.get("database"))]


def ready(watched: Watched) -> bool:
    return watched.probe("/readyz")[0] == 200


def not_ready(watched: Watched) -> tuple[list[str], dict[str, Any]]:
    """The problems once there are some."""
    _, body = eventually(lambda: (found := watched.probe("/readyz"))[0] == 503 and found, PATIENCE, 0.1)
    return body["problems"], body


def test_a_database_unreachable_at_the_start_is_retried_while_the_other_one_is_delivered(cluster, start, own_server):
    here, away = name_of(cluster.dsn), name_of(own_server.dsn)
    publish(own_server.dsn, "Good", 5)
    own_server.server.stop("immediate")
    node = start(cluster.dsn, own_server.dsn, log_format="json")
    publish(cluster.dsn, "Good", 3)
    watched = Watched(node)
    numbers = settled(watched, "delivered_total", 3, handler="good", database=here)
    assert numbers.of("database_up", database=here) == 1
    assert numbers.of("database_up", database=away) == numbers.of("processes", database=away) == 0
    (warning,) = eventually(lambda: said(node, "database_away"), PATIENCE, 0.05)
    assert (warning["level"], warning["database"]) == ("WARNING", away)
    assert "cannot connect to the database: its events wait, events of other databases do not" in warning["message"]
    problems, body = eventually(lambda: len((found := not_ready(watched))[0]) == 1 and found, PATIENCE, 0.1)
    assert problems[0].startswith(f"{away}: cannot connect to the database, retried for")
    assert [each["hindrance"] is None for each in body["supervisors"]] == [True, False]
    assert watched.probe("/healthz")[0] == 200
    own_server.server.start()
    settled(watched, "delivered_total", 5, handler="good", database=away)
    eventually(lambda: ready(watched), PATIENCE, 0.1)
    assert [line["database"] for line in said(node, "database_joined")] == [away]
    assert node.stop() == 0
    for event in ("node_started", "worker_started", "claimed", "worker_stopped", "node_stopped"):
        assert sorted(line["database"] for line in said(node, event)) == sorted([here, away]), event


def test_a_database_lost_later_disturbs_no_other_one_and_comes_back(cluster, start, own_server):
    here, lost = name_of(cluster.dsn), name_of(own_server.dsn)
    watched = Watched(start(cluster.dsn, own_server.dsn))
    eventually(lambda: ready(watched), PATIENCE, 0.1)
    own_server.server.stop("immediate")
    problems, _ = not_ready(watched)
    assert {problem.partition(": ")[0] for problem in problems} == {lost}
    assert watched.probe("/healthz")[0] == 200
    publish(cluster.dsn, "Good", 7)
    settled(watched, "delivered_total", 7, handler="good", database=here)
    assert f"] {lost}: " in "".join(line for line in watched.node.log.splitlines() if " ERROR " in line)
    assert f"] {here}: " not in "".join(line for line in watched.node.log.splitlines() if " ERROR " in line)
    own_server.server.start()
    publish(own_server.dsn, "Good", 4)
    settled(watched, "delivered_total", 4, handler="good", database=lost)
    eventually(lambda: ready(watched), PATIENCE, 0.1)


def test_a_database_without_the_schema_is_an_error_with_the_remedy_and_is_served_once_it_is_migrated(
    cluster, start, empty_dsn
):
    bare = name_of(empty_dsn)
    node = start(cluster.dsn, empty_dsn, log_format="json")
    watched = Watched(node)
    publish(cluster.dsn, "Good", 3)
    settled(watched, "delivered_total", 3, handler="good", database=name_of(cluster.dsn))
    (line,) = eventually(lambda: said(node, "database_unfit"), PATIENCE, 0.05)
    assert (line["level"], line["database"]) == ("ERROR", bare)
    assert "partbox init" in line["message"]
    problems, _ = not_ready(watched)
    assert any(each.startswith(f"{bare}: cannot use the database") and "partbox init" in each for each in problems)
    assert watched.probe("/healthz")[0] == 200
    migrate(empty_dsn)
    publish(empty_dsn, "Good", 2)
    settled(watched, "delivered_total", 2, handler="good", database=bare)
    eventually(lambda: ready(watched), PATIENCE, 0.1)
    assert len(said(node, "database_unfit")) == 1


@pytest.mark.thorough
def test_a_schema_that_turns_into_a_copy_ends_the_processes_of_its_database_only(cluster, start, second):
    here, lost = name_of(cluster.dsn), name_of(second)
    node = start(cluster.dsn, second, log_format="json")
    watched = Watched(node)
    eventually(lambda: ready(watched), PATIENCE, 0.1)
    with psycopg.connect(second, autocommit=True) as conn:
        conn.execute("update partbox.meta set xid = '3' where key = 'marker'")
        conn.execute(CUT, [lost, conn.info.backend_pid])
        (line, *_) = eventually(lambda: said(node, "database_unfit", lost), PATIENCE, 0.05)
        assert "partbox rebase" in line["message"]
        publish(cluster.dsn, "Good", 3)
        settled(watched, "delivered_total", 3, handler="good", database=here)
        settled(watched, "processes", 0, database=lost)
        assert watched.probe("/healthz")[0] == 200
    Outbox(second).rebase()
    publish(second, "Good", 2)
    settled(watched, "delivered_total", 2, handler="good", database=lost)
    assert node.stop() == 0


def test_if_no_database_can_be_worked_for_it_is_a_one_line_error_with_the_exit_code_as_for_one(start, empty_dsn):
    away = "postgresql://ada:s3cret@127.0.0.1:1/shop"
    node = start(away, empty_dsn, flags=[])
    assert node.wait() == 1
    (line,) = [line for line in node.log.splitlines() if line.startswith("partbox: ")]
    assert "none of the 2 databases can be used" in line
    assert "shop: connection" in line
    assert f"{name_of(empty_dsn)}: " in line
    assert "s3cret" not in node.log


def test_until_empty_ends_with_1_and_names_the_databases_that_it_could_not_work_for(cluster, start):
    publish(cluster.dsn, "Good", 20)
    node = start(cluster.dsn, "postgresql://127.0.0.1:1/shop", flags=["--until-empty"], log_format="json")
    assert node.wait() == 1
    assert cluster.owners.consumed()
    (line,) = said(node, "not_delivered")
    assert (line["level"], line["database"]) == ("ERROR", "shop")
    assert said(node, "all_delivered") == []


def test_until_empty_ends_with_0_if_every_database_is_reachable(cluster, start, second):
    for dsn in (cluster.dsn, second):
        publish(dsn, "Good", 20)
    node = start(cluster.dsn, second, flags=["--until-empty"], log_format="json")
    assert node.wait() == 0
    assert len(said(node, "all_delivered")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_does_not_wait_for_a_database_that_is_being_connected_to(cluster, start, mute, number):
    """It would answer in a minute, which is more than the test waits for the end."""
    node = start(cluster.dsn, mute, lease=60, heartbeat=1)
    cluster.balanced(1)
    assert " mute: " not in node.log, "it is still being connected to"
    node.send(number)
    assert node.wait() == 0
    assert cluster.owners.instances() == {}
    assert "s3cret" not in node.log


def test_a_stop_works_while_a_database_is_being_retried(cluster, start):
    node = start(cluster.dsn, "postgresql://127.0.0.1:1/shop")
    cluster.balanced(1)
    eventually(lambda: "] shop: cannot connect" in node.log, PATIENCE, 0.05)
    assert node.stop() == 0
    assert cluster.owners.instances() == {}


@pytest.mark.thorough
def test_a_second_database_is_migrated_at_its_first_start_whenever_that_is(cluster, start, own_server):
    execute(own_server.server.dsn, "create database {}", "later")
    later = make_conninfo(own_server.server.dsn, dbname="later")
    own_server.server.stop("immediate")
    node = start(cluster.dsn, later, auto_migrate="true")
    watched = Watched(node)
    eventually(lambda: "] later: cannot connect" in node.log, PATIENCE, 0.05)
    own_server.server.start()
    eventually(lambda: ready(watched), PATIENCE, 0.1)
    publish(later, "Good", 1)
    settled(watched, "delivered_total", 1, handler="good", database="later")


def test_a_relay_creates_its_subscription_in_each_database_once_that_can_be_reached(
    cluster, own_server, forks, tmp_path
):
    with psycopg.connect(cluster.dsn, autocommit=True) as conn:
        Planter(conn).publish("1", event_type="Here")
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        Planter(conn).publish("1", event_type="There")
    own_server.server.stop("immediate")
    place = tmp_path / "events.jsonl"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    log = tmp_path / "relay.log"
    flags = ("--to", f"file:{place}", "--processes", "1", "--dsn", cluster.dsn, "--dsn", own_server.dsn)
    process = forks.start_into(log, "partbox", "relay", *flags, cwd=tmp_path, env=environment)

    def relayed() -> set[str]:
        with contextlib.suppress(FileNotFoundError):
            return {json.loads(line)["type"] for line in place.read_text().splitlines()}
        return set()

    try:
        eventually(lambda: relayed() == {"Here"}, PATIENCE, 0.05)
        assert f"] {name_of(own_server.dsn)}: cannot connect" in log.read_text()
        own_server.server.start()
        eventually(lambda: relayed() == {"Here", "There"}, PATIENCE, 0.05)
        assert {each.name for each in Outbox(own_server.dsn).subscriptions.list()} == {"default", "relay"}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
