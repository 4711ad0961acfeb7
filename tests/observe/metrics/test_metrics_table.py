"""The table of metrics is what is exposed, and what is documented."""

import re
from pathlib import Path

import pytest
from overviews import cluster, limited, overview, watched
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from partbox.cli.commands.metrics import render_page
from partbox.db.delivery.limits import LimitReport, merge_limits
from partbox.observe.collector import build_registry
from partbox.observe.metrics.application import get_application_collector
from partbox.observe.metrics.table import METRICS, Metric, MetricSource

ROOT = Path(__file__).resolve().parents[3]
MARKED = {"histogram": {"le"}}


def exposed(registry: CollectorRegistry) -> dict[str, tuple[str, set[frozenset[str]]]]:
    """The type of each metric, and the names of the labels of its samples."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        sums = [sample for sample in family.samples if sample.name.endswith(("_sum", "_count"))]
        samples = sums if family.type == "histogram" else family.samples
        found[name] = (family.type, {frozenset(sample.labels) for sample in samples})
    return found


def in_table(metric: Metric, *extra: str) -> tuple[str, set[frozenset[str]]]:
    return metric.kind, {frozenset([*metric.labels, *extra])}


def test_a_node_exposes_what_the_table_says_and_nothing_else():
    ours = [metric for metric in METRICS if metric.source is not MetricSource.APPLICATION]
    assert exposed(build_registry("partbox", [watched(limited)])) == {f"partbox_{m.name}": in_table(m) for m in ours}


def test_with_several_databases_every_series_has_a_database_label():
    found = exposed(build_registry("partbox", [watched(limited, database="a"), watched(limited, database="b")]))
    expected = {
        f"partbox_{m.name}": in_table(m) if m.name == "scrape_seconds" else in_table(m, "database")
        for m in METRICS
        if m.source is not MetricSource.APPLICATION
    }
    assert found == expected


def test_an_application_exposes_what_it_published_and_its_workers_from_the_table():
    registry = CollectorRegistry()
    get_application_collector(registry, "shop").get_shared_meters("default", ["confirm"], ["bus"])
    by_name = {f"shop_{metric.name}": metric for metric in METRICS}
    found = exposed(registry)
    assert "shop_published_total" in found
    assert found == {name: in_table(by_name[name]) for name in found}
    assert {by_name[name].source for name in found} == {
        MetricSource.APPLICATION,
        MetricSource.PROCESSES,
        MetricSource.NODE,
    }


def test_an_outbox_with_several_subscriptions_shows_each_of_them():
    both = overview(cluster(subscription="default"), cluster(subscription="audit", paused=True, paused_at=None))
    text = generate_latest(build_registry("partbox", [watched(lambda: both)])).decode()
    assert 'partbox_subscription_paused{subscription="audit"} 1.0' in text
    assert 'partbox_subscription_paused{subscription="default"} 0.0' in text


def test_the_documentation_lists_the_metrics_as_they_are():
    committed = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert committed.endswith(render_page()), "partbox metrics --markdown >> docs/metrics.md, in place of what is there"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_prometheus(metric):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert len({each.name for each in METRICS}) == len(METRICS)
    assert "|" not in metric.meaning
    assert not {"aggregate_id", "tenant_id", "event_id"} & set(metric.labels)


def test_a_limit_is_exposed_with_its_bounds_and_its_waiting_events_and_a_missing_bound_is_not():
    kept = [LimitReport("charge", 0.5, None, None, 7, 2.5), LimitReport("send", None, 3)]
    seen = overview(cluster(limits=merge_limits("default", kept, [])))
    text = generate_latest(build_registry("partbox", [watched(lambda: seen)])).decode()
    shown = [line for line in text.splitlines() if line.startswith("partbox_limit_")]
    assert shown == [
        'partbox_limit_per_second{handler="charge",subscription="default"} 0.5',
        'partbox_limit_at_once{handler="send",subscription="default"} 3.0',
        'partbox_limit_waiting{handler="charge",subscription="default"} 7.0',
        'partbox_limit_waiting{handler="send",subscription="default"} 0.0',
        'partbox_limit_wait_seconds{handler="charge",subscription="default"} 2.5',
        'partbox_limit_wait_seconds{handler="send",subscription="default"} 0.0',
    ]
