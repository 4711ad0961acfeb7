"""Metrics by OpenTelemetry, as a reader in memory sees them, held against those for Prometheus."""

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, Histogram, InMemoryMetricReader, Sum
from overviews import cluster, limited, overview, watched
from parcels import pack, unpack
from prometheus_client import CollectorRegistry
from waiting import eventually

from partbox import Event, Outbox, UnrecoverableError
from partbox.errors import PartboxError
from partbox.observe import Observers
from partbox.observe.collector import NodeCollector, build_registry
from partbox.observe.metering import Metering
from partbox.observe.metrics.application import ApplicationCollector
from partbox.observe.metrics.table import BY_NAME, METRICS
from partbox.observe.observer import Answer, Turn

Series = dict[tuple[tuple[str, str], ...], Any]


class Reader:
    """A provider, and what is read of it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def read(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        metrics = [metric for scope in scopes for metric in scope.metrics]
        assert len({metric.name for metric in metrics}) == len(metrics)
        assert {scope.scope.name for scope in scopes} <= {"partbox"}
        return {metric.name: metric for metric in metrics}

    def values(self, name: str) -> Series:
        """The values of a metric, by labels; (count, sum) of a histogram."""
        metric = self.read().get(name)
        return (
            {} if metric is None else {tuple(sorted(p.attributes.items())): _value(p) for p in metric.data.data_points}
        )


def _value(point: Any) -> Any:
    return (point.count, pytest.approx(point.sum)) if hasattr(point, "bucket_counts") else point.value


@pytest.fixture
def reader():
    made = Reader()
    yield made
    made.provider.shutdown()


def labels(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given.items()))


def test_every_metric_of_the_table_is_shown_with_its_kind_unit_meaning_and_labels(reader):
    metering = Metering(reader.provider)
    metering.export_collector("partbox", NodeCollector("partbox", [watched(limited)]))
    metering.export_collector("partbox", ApplicationCollector("partbox"))
    recorder = metering.build_recorder("partbox", "default")
    recorder.delivered(Turn("confirm", 3, 0.75, [0.7], oldest=90.0, newest=99.0, ended=100.0))
    recorder.claimed(1, 1, 0.2)
    recorder.answered("bus", Answer(2, 2, 0, 0, 0.1, None))
    shown = reader.read()

    assert set(shown) == {f"partbox.{metric.name.removesuffix('_total')}" for metric in METRICS}
    for metric in METRICS:
        found = shown[f"partbox.{metric.name.removesuffix('_total')}"]
        assert type(found.data) is {"counter": Sum, "histogram": Histogram, "gauge": Gauge}[metric.kind], metric.name
        assert getattr(found.data, "is_monotonic", True), metric.name
        assert found.description == metric.meaning
        assert found.unit == ("s" if "seconds" in metric.name else "1" if "ratio" in metric.name else "")
        assert {frozenset(point.attributes) for point in found.data.data_points} == {frozenset(metric.labels)}
        if metric.buckets:
            assert {point.explicit_bounds for point in found.data.data_points} == {metric.buckets}


def test_counters_and_gauges_of_a_node_are_those_of_its_prometheus(reader):
    seen = overview(cluster(), cluster(subscription="audit", paused=True, paused_at=None, parked={"dead": 3}))
    node = watched(lambda: seen)
    node.meters.own_meter.add("rebalances_total", 4)
    Metering(reader.provider).export_collector("partbox", NodeCollector("partbox", [node]))
    shown = reader.read()

    families = [each for each in build_registry("partbox", [node]).collect() if each.type != "histogram"]
    assert len(families) == len(METRICS) - 5  # four histograms, and what the application counts
    for family in families:
        theirs = {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        points = shown[family.name.replace("_", ".", 1)].data.data_points if family.samples else []
        ours = {tuple(sorted(point.attributes.items())): point.value for point in points}
        if family.name != "partbox_scrape_seconds":
            assert ours == theirs, family.name


def test_a_worker_shows_the_same_numbers_as_in_a_registry(reader, dsn):
    registry = CollectorRegistry()
    outbox = Outbox(dsn, registry=registry)
    outbox.observe(Metering(reader.provider))
    outbox.on("Good", name="good")(lambda event: None)

    @outbox.on("Bad", name="bad")
    def bad(event):
        raise UnrecoverableError("no")

    with psycopg.connect(dsn) as conn:
        outbox.publish_many(conn, [*[Event("Good", {})] * 30, Event("Bad", {})])
    with outbox.worker() as worker:
        assert worker.wait_until_empty(120)
        assert reader.values("partbox.processes") == {labels(subscription="default"): 1}
    assert reader.values("partbox.published") == {(): 31}
    assert reader.values("partbox.delivered")[labels(subscription="default", handler="good")] == 30
    assert reader.values("partbox.dead")[labels(subscription="default", handler="bad")] == 1
    assert reader.values("partbox.processes") == {labels(subscription="default"): 0}
    for name, handler, count in (
        ("handler_seconds", "good", 30),
        ("handler_seconds", "bad", 1),
        ("lag_seconds", "good", 30),
    ):
        about = {"subscription": "default", "handler": handler}
        theirs = [registry.get_sample_value(f"partbox_{name}_{part}", about) for part in ("count", "sum")]
        assert reader.values(f"partbox.{name}")[labels(**about)] == tuple(theirs)
        assert theirs[0] == count


def test_histograms_can_be_left_out_and_take_nothing_from_an_event_then():
    left_out = unpack(pack(Metering(histograms=False)))
    assert not Observers([left_out, left_out.build_recorder("partbox", "default")]).has_hook(
        "delivered", "parked", "answered"
    )


def test_histograms_have_the_buckets_of_prometheus(reader):
    metering = Metering(reader.provider)
    recorder = metering.build_recorder("partbox", "default")
    recorder.delivered(Turn("confirm", 5, 0.7032, [0.2, 0.5], oldest=90.0, newest=99.5, ended=100.0))
    points = {name: reader.read()[f"partbox.{name}"].data.data_points for name in ("handler_seconds", "lag_seconds")}

    def filled(name: str) -> dict[float, int]:
        (point,) = points[name]
        return {bound: count for bound, count in zip(BY_NAME[name].buckets, point.bucket_counts, strict=False) if count}

    assert filled("handler_seconds") == {0.0025: 3, 0.25: 1, 0.5: 1}
    assert filled("lag_seconds") == {10.0: 2, 0.5: 3}
    (ran,) = points["handler_seconds"]
    assert ran.sum == pytest.approx(0.7032)


def test_outboxes_with_one_provider_are_added_up_unless_their_prefixes_differ(reader, dsn):
    for settings in ({}, {}, {"metrics_prefix": "shop"}):
        outbox = Outbox(dsn, **settings)
        outbox.observe(Metering(reader.provider))
        with psycopg.connect(dsn) as conn:
            outbox.publish(conn, "Good", {})
    assert reader.values("partbox.published") == {(): 2}
    assert reader.values("shop.published") == {(): 1}


def test_metrics_of_a_node_that_is_hidden_disappear_and_the_others_stay(reader):
    metering = Metering(reader.provider)
    hide = metering.export_collector("partbox", NodeCollector("partbox", [watched()]))
    metering.export_collector("partbox", ApplicationCollector("partbox"))
    assert len(reader.values("partbox.partition_epoch")) == 256
    hide()
    hide()
    assert reader.values("partbox.partition_epoch") == {}
    assert reader.values("partbox.published") == {(): 0}


def test_a_provider_cannot_be_sent_to_worker_processes_but_a_function_that_makes_one_can():
    with pytest.raises(PartboxError, match="a meter provider cannot be passed to worker processes: give Metering"):
        pack(Metering(MeterProvider(shutdown_on_exit=False)))
    made: list[Reader] = []
    metering = Metering(lambda: (made.append(Reader()), made[-1].provider)[1])
    there = unpack(pack(metering))
    there.build_recorder("partbox", "default").claimed(1, 1, 0.2)  # made in the process that needs it
    assert made == []
    for _ in range(2):
        metering.build_recorder("partbox", "default").claimed(1, 1, 0.2)
    (reader,) = made
    assert reader.values("partbox.handover_seconds") == {labels(subscription="default"): (2, 0.4)}


SHOP = """
import os
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from partbox import Outbox
from partbox.observe.metering import Metering

file = open(f"metrics-{os.getpid()}", "a")
exporter = ConsoleMetricExporter(out=file, formatter=lambda data: data.to_json(indent=None) + chr(10))
outbox = Outbox()
outbox.observe(Metering())
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=200)]))
outbox.on("Counted", name="count")(lambda event: None)
"""


def test_a_supervisor_shows_its_node_and_each_worker_process_its_histograms(dsn, tmp_path, forks):
    (tmp_path / "metered_shop.py").write_text(SHOP)
    with psycopg.connect(dsn) as conn:
        Outbox(dsn).publish_many(conn, [Event("Counted", {}) for _ in range(5)])
    process = forks.start("partbox", "worker", "metered_shop:outbox", "--dsn", dsn, "--processes", "2", cwd=tmp_path)

    def exported(path: Path, name: str) -> Series:
        """The points of a metric, by labels, as a process exported them last."""
        lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
        resources = [of for line in lines[-1:] for of in json.loads(line)["resource_metrics"]]
        metrics = [metric for of in resources for scope in of["scope_metrics"] for metric in scope["metrics"]]
        points = [point for metric in metrics if metric["name"] == name for point in metric["data"]["data_points"]]
        return {tuple(sorted(point["attributes"].items())): point for point in points}

    def of_node(name: str, **given: str) -> float | None:
        points = exported(tmp_path / f"metrics-{process.pid}", f"partbox.{name}")
        return points.get(labels(subscription="default", **given), {}).get("value")

    eventually(lambda: of_node("delivered", handler="count") == 5)
    eventually(lambda: (of_node("processes"), of_node("partitions_unowned")) == (2, 0))
    eventually(lambda: of_node("records", status="pending") == 0)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert of_node("delivered", handler="count") == 5
    workers = {*tmp_path.glob("metrics-*")} - {tmp_path / f"metrics-{process.pid}"}
    assert len(workers) == 2
    handler = labels(subscription="default", handler="count")
    counts = [exported(path, "partbox.handler_seconds").get(handler, {"count": 0})["count"] for path in workers]
    assert sum(counts) == 5
    assert [exported(path, "partbox.delivered") for path in workers] == [{}, {}]  # its supervisor has that
