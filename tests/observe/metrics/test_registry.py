"""What an application sees in its own registry."""

import pickle

import dill
import psycopg
import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from waiting import eventually

from partbox import Outbox
from partbox.errors import SettingsError
from partbox.events import Event
from partbox.observe.metrics.application import get_application_collector
from partbox.observe.metrics.meter import Layout, Meter, Meters


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def shown(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def publish(outbox: Outbox, dsn: str, count: int = 1) -> None:
    with psycopg.connect(dsn) as conn:
        outbox.publish_many(conn, [Event("Greeted", {}, aggregate_type="Guest", aggregate_id="a")] * count)


def test_published_events_are_counted(registry, dsn):
    outbox = Outbox(dsn, registry=registry)
    assert shown(registry, "partbox_published_total") == 0
    publish(outbox, dsn, 3)
    with psycopg.connect(dsn) as conn:
        outbox.publish(conn, "Greeted", {}, aggregate_type="Guest", aggregate_id="a")
    assert shown(registry, "partbox_published_total") == 4


def test_several_outboxes_with_one_registry_are_added_up(registry, dsn):
    for outbox in (Outbox(dsn, registry=registry), Outbox(dsn, registry=registry)):
        publish(outbox, dsn)
    assert shown(registry, "partbox_published_total") == 2


def test_an_outbox_with_another_prefix_is_counted_by_itself(registry, dsn):
    ours, theirs = Outbox(dsn, registry=registry), Outbox(dsn, registry=registry, metrics_prefix="theirs")
    publish(ours, dsn)
    publish(theirs, dsn, 2)
    assert shown(registry, "partbox_published_total") == 1
    assert shown(registry, "theirs_published_total") == 2


def test_a_worker_in_the_process_is_shown_and_its_gauges_go_with_it(registry, dsn):
    outbox = Outbox(dsn, registry=registry)

    @outbox.on("Greeted", name="greet")
    def greet(event):
        """Done."""

    labels = {"subscription": "default", "handler": "greet"}
    for round in (1, 2):
        publish(outbox, dsn, 5)
        with outbox.worker() as worker:
            assert shown(registry, "partbox_processes", subscription="default") == 1
            assert worker.wait_until_empty(120)
        assert shown(registry, "partbox_delivered_total", **labels) == 5 * round
        assert shown(registry, "partbox_processes", subscription="default") == 0
    assert shown(registry, "partbox_lag_seconds_count", **labels) == 10
    assert shown(registry, "partbox_claimed_partitions_total", subscription="default") == 512


def test_nodes_that_have_ended_leave_their_counters_but_no_gauges(registry):
    application = get_application_collector(registry, "partbox")
    labels = {"subscription": "default"}
    for round in (1, 2, 3):
        meters, living = Meters(["greet"]), Meter(Layout(["greet"]))
        application.add_meters("default", meters)
        meters.add_meter(living)
        meters.own_meter.add("rebalances_total")
        living.add("lanes", 5)
        assert shown(registry, "partbox_rebalances_total", **labels) == round
        assert shown(registry, "partbox_lanes", **labels) == 5
        meters.retire_meter(living)
        meters.on_end()
        meters.on_end()
        assert shown(registry, "partbox_rebalances_total", **labels) == round
        assert shown(registry, "partbox_lanes", **labels) == 0
        assert len(application._meters) == 1


def test_without_a_registry_nothing_is_counted_nor_shown(dsn):
    outbox = Outbox(dsn)
    assert outbox.handlers.observers == ()
    assert outbox.supervisor().meters is None
    assert outbox.supervisor(metrics=True).meters is not None


def test_metric_names_that_are_already_taken_are_refused_in_one_line_with_the_remedy(registry):
    Counter("partbox_published", "somebody else's", registry=registry)
    with pytest.raises(SettingsError, match="names begin with partbox_: set metrics_prefix"):
        Outbox("postgresql://nowhere", registry=registry)
    Outbox("postgresql://nowhere", registry=registry, metrics_prefix="shop")


def test_an_object_that_is_no_registry_is_refused_in_one_line():
    with pytest.raises(SettingsError, match=r"registry = 'yes' must be a prometheus_client\.CollectorRegistry"):
        Outbox("postgresql://nowhere", registry="yes")


@pytest.mark.parametrize("travel", [lambda it: pickle.loads(pickle.dumps(it)), lambda it: dill.loads(dill.dumps(it))])
def test_the_registry_is_not_sent_along_with_handlers_to_worker_processes(registry, travel):
    outbox = Outbox("postgresql://nowhere", registry=registry)
    (there,) = travel(outbox.handlers.observers)
    there.published([Event("Greeted", {}, aggregate_type="Guest")])
    assert shown(registry, "partbox_published_total") == 0


def test_a_node_in_an_application_is_shown_in_its_registry(registry, dsn):
    outbox = Outbox(dsn, registry=registry, lease=2, heartbeat=0.3)
    outbox.register(print, "Greeted")
    supervisor = outbox.supervisor(processes=1)
    supervisor.start()
    try:
        eventually(lambda: shown(registry, "partbox_claimed_partitions_total", subscription="default") == 256)
        assert shown(registry, "partbox_processes", subscription="default") == 1
    finally:
        supervisor.stop()
        supervisor.join()
    assert shown(registry, "partbox_processes", subscription="default") == 0
    assert "partbox_rebalances_total" in generate_latest(registry).decode()
