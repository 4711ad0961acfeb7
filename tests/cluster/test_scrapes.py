"""Metrics and health of real nodes, over HTTP."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from linux import reads_proc
from node import PATIENCE, Node
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict
from scraping import Numbers, Watched, publish, settled
from servers import new_database
from waiting import eventually

from partbox.observe.metrics.table import METRICS, MetricSource

FAST = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20}


@pytest.fixture
def start(cluster) -> Callable[..., Watched]:
    """Starts a node of `metrics_app` that serves HTTP; it is ended with the test."""

    def start(name: str, processes: int = 1, dsn: str | None = None, **settings: Any) -> Watched:
        flags = ["--processes", str(processes), "--http", ":0"]
        given = FAST | {"dsn": dsn or cluster.dsn} | settings
        node = Node(name, cluster.folder, cluster.journal.folder, flags, given, "metrics_app:outbox")
        cluster.nodes.append(node)
        return Watched(node)

    return start


@pytest.fixture
def new_database_dsn(server, template) -> Iterator[str]:
    """A second database with the schema."""
    with new_database(server.dsn, template) as dsn:
        yield dsn


def test_counters_add_up_to_the_outcomes_of_the_events(cluster, start):
    node = start("one", processes=2)
    cluster.balanced(2)
    publish(cluster.dsn, "Good", 200)
    publish(cluster.dsn, "Bad", 6, keys=3)
    publish(cluster.dsn, "Later", 3)
    publish(cluster.dsn, "Hopeless", 2)
    settled(node, "dead_total", 6, handler="bad")
    settled(node, "delivered_total", 3, handler="later")
    settled(node, "dead_total", 2, handler="hopeless")
    settled(node, "delivered_total", 200, handler="good")
    numbers = settled(node, "records", 0, status="pending")
    assert numbers.of("failed_total", handler="bad") == 18
    assert numbers.of("failed_total", handler="hopeless") == 2
    assert numbers.of("failed_total", handler="good") == numbers.of("failed_total", handler="later") == 0
    assert numbers.of("deferred_total", handler="later") == 3
    assert numbers.of("delivered_total", handler="bad") == 0
    assert numbers.of("records_read_total") >= 211
    assert numbers.of("lag_seconds_count", handler="good") == 200
    assert numbers.of("handler_seconds_count", handler="bad") == 18
    assert numbers.of("claimed_partitions_total") >= 256
    assert numbers.of("saves_total") > 0
    settled(node, "parked_total", 8, state="dead")
    numbers = settled(node, "records", 8, status="dead")  # seen since they died: so the database had the owners, too
    assert numbers.of("processes") == 2
    assert numbers.of("partitions_assigned_here") == 256


def test_every_documented_metric_is_exposed_with_exactly_its_labels_beside_the_dashboard(cluster, start):
    node = start("one")
    publish(cluster.dsn, "Good", 1)
    settled(node, "delivered_total", 1, handler="good")

    def exposed() -> bool:  # what is said of the database may be a second old, from before the processes were there
        of_family = {each.name: set() for each in METRICS}
        for family in text_string_to_metric_families(node.numbers().text):
            name = family.name.removeprefix("partbox_") + ("_total" if family.type == "counter" else "")
            of_family[name] |= {frozenset(set(sample.labels) - {"le"}) for sample in family.samples}
        for metric in METRICS:
            expected = set() if metric.source is MetricSource.APPLICATION else {frozenset(metric.labels)}
            assert of_family[metric.name] == expected, metric.name
        return True

    eventually(exposed, PATIENCE, 0.05)
    assert "with the live page" in node.node.log
    status, text = node.get("/")
    assert (status, text.lstrip().lower().startswith("<!doctype html>")) == (200, True)
    assert node.get("/nothing")[0] == 404
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=node.numbers().text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_a_killed_process_loses_no_counts_and_its_gauges_disappear(cluster, start):
    node = start("one", processes=2)
    cluster.balanced(2)
    publish(cluster.dsn, "Good", 300)
    settled(node, "delivered_total", 300, handler="good")
    victim, pid = next(iter(cluster.owners.instances("one").items()))

    def saved() -> Numbers:  # what is done and not saved would be repeated
        numbers = node.numbers()
        assert numbers.of("records", status="pending") == 0
        assert str(victim) in numbers.labels("instance_partitions", "instance")
        return numbers

    before = eventually(saved, PATIENCE, 0.1)
    cluster.kill(pid)
    last = before.counters()

    def replaced() -> Numbers:
        nonlocal last
        numbers = node.numbers()
        now = numbers.counters()
        assert not {key: (last[key], now.get(key)) for key in last if now.get(key, 0) < last[key]}
        last = now
        assert numbers.of("process_restarts_total") == 1
        assert numbers.of("processes") == 2
        assert numbers.of("partitions_unowned") == 0
        assert str(victim) not in numbers.labels("instance_partitions", "instance")
        assert str(victim) not in numbers.labels("partition_owner", "instance")
        return numbers

    after = eventually(replaced, PATIENCE, 0.05)
    assert after.of("buried_instances_total") >= 1
    publish(cluster.dsn, "Good", 150)
    settled(node, "delivered_total", 450, handler="good")


def test_two_nodes_count_their_own_deliveries_and_see_the_same_database(cluster, start):
    one, two = start("one"), start("two")
    cluster.balanced(2)
    publish(cluster.dsn, "Good", 300, keys=200)

    def both() -> tuple[Numbers, Numbers]:
        seen = one.numbers(), two.numbers()
        assert sum(each.of("delivered_total", handler="good") for each in seen) == 300
        assert all(each.of("records", status="pending") == 0 for each in seen)
        assert [each.of("partitions_assigned_here") for each in seen] == [128, 128]
        return seen

    first, second = eventually(both, PATIENCE, 0.2)
    assert first.of("delivered_total", handler="good") > 0 < second.of("delivered_total", handler="good")
    for name in ("instances", "partitions", "partitions_unowned", "partition_owner", "partition_epoch"):
        assert first.of(name) == second.of(name), name
    assert first.labels("instance_partitions", "node") == {"one", "two"}
    two.node.stop()
    numbers = settled(one, "partitions_assigned_here", 256)
    assert numbers.labels("partition_owner", "node") == {"one"}
    assert numbers.of("handover_seconds_count") >= 1


def test_gauges_show_the_handlers_that_run_now(cluster, start):
    node = start("one")
    gate = cluster.gate()
    publish(cluster.dsn, "Slow", 3, gate=str(gate))
    numbers = settled(node, "handlers_running", 3)
    assert numbers.of("lanes") >= 3
    assert 0 < numbers.of("window_used_ratio") <= 1
    gate.touch()
    settled(node, "handlers_running", 0)
    assert settled(node, "delivered_total", 3, handler="slow").of("handler_seconds_sum", handler="slow") > 0


def test_a_working_node_is_alive_and_ready_and_a_stopping_one_is_not_ready(cluster, start):
    node = start("one")
    eventually(lambda: node.probe("/readyz")[0] == 200, PATIENCE, 0.1)
    status, body = node.probe("/healthz")
    assert (status, body["status"], body["problems"], body["node"]) == (200, "ok", [], "one")
    gate = cluster.gate()
    publish(cluster.dsn, "Slow", 1, gate=str(gate))
    settled(node, "handlers_running", 1)
    node.node.send(signal.SIGTERM)
    status, body = eventually(lambda: (found := node.probe("/readyz"))[0] == 503 and found, PATIENCE, 0.1)
    assert body["problems"][0] == "the node is stopping"
    assert node.probe("/healthz")[0] == 200
    gate.touch()
    assert node.node.wait() == 0


def test_a_lost_database_is_reported_and_the_node_lives_on(cluster, start, own_server):
    node = start("one", dsn=own_server.dsn)
    publish(own_server.dsn, "Good", 10)
    settled(node, "delivered_total", 10, handler="good")
    own_server.server.stop("immediate")
    away = settled(node, "database_up", 0)
    assert away.of("delivered_total", handler="good") == 10
    assert away.of("processes") == 1
    _, body = eventually(lambda: (found := node.probe("/readyz"))[0] == 503 and found, PATIENCE, 0.1)
    assert "holds a lease" in body["problems"][0]
    assert node.probe("/healthz")[0] == 200
    own_server.server.start()
    back = settled(node, "database_up", 1)
    assert back.of("delivered_total", handler="good") >= 10
    eventually(lambda: node.probe("/readyz")[0] == 200, PATIENCE, 0.1)


@pytest.mark.thorough
def test_every_series_of_a_node_with_two_databases_names_its_database(cluster, new_database_dsn):
    flags = ["--processes", "1", "--http", ":0", "--dsn", cluster.dsn, "--dsn", new_database_dsn]
    node = Node("one", cluster.folder, cluster.journal.folder, flags, FAST, "metrics_app:outbox")
    cluster.nodes.append(node)
    first, second = (conninfo_to_dict(dsn)["dbname"] for dsn in (cluster.dsn, new_database_dsn))
    publish(cluster.dsn, "Good", 3)
    publish(new_database_dsn, "Good", 5)
    watched = Watched(node)
    settled(watched, "delivered_total", 3, handler="good", database=first)
    numbers = settled(watched, "delivered_total", 5, handler="good", database=second)
    assert numbers.of("database_up") == 2
    assert numbers.labels("partition_owner", "database") == {first, second}


@pytest.mark.parametrize(
    ("given", "says"),
    [("nonsense", "nonsense (from --http) is invalid: give HOST:PORT"), ("127.0.0.1:99999", "must be HOST:PORT")],
    ids=["no address", "no port"],
)
def test_a_wrong_http_address_is_a_one_line_error_and_starts_nothing(cluster, given, says):
    node = Node("one", cluster.folder, cluster.journal.folder, ["--http", given], FAST | {"dsn": cluster.dsn})
    cluster.nodes.append(node)
    assert node.wait() == 1
    assert says in node.log
    assert len(node.log.splitlines()) == 1
    assert cluster.owners.instances() == {}


def test_a_taken_http_address_is_a_one_line_error_and_starts_nothing(cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        node = Node("one", cluster.folder, cluster.journal.folder, ["--http", address], FAST | {"dsn": cluster.dsn})
        cluster.nodes.append(node)
        assert node.wait() == 1
    assert f"cannot serve HTTP at {address}" in node.log
    assert len(node.log.splitlines()) == 1
    assert cluster.owners.instances() == {}


@reads_proc
def test_a_node_does_not_listen_for_http_unless_it_is_asked_to(cluster):
    node = cluster.node("one")
    cluster.balanced(1)
    fds = [Path(f"/proc/{pid}/fd") for pid in node.family()]
    inodes = {os.readlink(fd) for folder in fds for fd in folder.iterdir()}
    listening = {
        f"socket:[{line.split()[9]}]"
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    assert not inodes & listening
