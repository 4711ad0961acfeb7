"""The list of all metrics at the end of `docs/metrics.md`; `partbox metrics --markdown` prints it."""

from partbox.observe.metrics.table import METRICS, Metric, MetricSource

HEAD = """\
## All metrics

`partbox_` is left out. The last two columns give the same or the nearest metric of
[namastack-outbox](https://github.com/namastack/namastack-outbox) and outbox-java (its module `outbox-micrometer`); `-`
means none.

| metric | type | labels | meaning | namastack-outbox | outbox-java |
|---|---|---|---|---|---|
"""

HISTOGRAMS = "\nUpper bounds of the histograms' buckets, in seconds:\n\n"

NAMASTACK = {
    "records": "`outbox.records.count` (new, failed, completed), `outbox.partitions.pending.records.total`",
    "partitions": "`outbox.cluster.partitions.total`",
    "partitions_unowned": "`outbox.cluster.partitions.unassigned.count`",
    "partitions_assigned_here": "`outbox.partitions.assigned.count`",
    "instance_partitions": "`outbox.cluster.partitions.avg_per_instance` (a mean)",
    "instances": "`outbox.cluster.instances.total`",
    "partition_pending_max": "`outbox.partitions.pending.records.max`",
    "partition_pending_avg": "`outbox.partitions.pending.records.avg`",
    "partition_owner": "`outbox.cluster.partitions.unassigned.flag`",
}
"""The equal or nearest metric of namastack-outbox, by the name of ours."""

OUTBOX_JAVA = {
    "records_read_total": "`outbox.enqueue.cold`",
    "delivered_total": "`outbox.dispatch.success`",
    "failed_total": "`outbox.dispatch.failure`",
    "dead_total": "`outbox.dispatch.dead`",
    "deferred_total": "`outbox.dispatch.deferred`",
    "handler_seconds": "`outbox.dispatch.listener.duration.ms`",
    "lag_seconds": "`outbox.dispatch.latency.ms`",
    "lanes": "`outbox.queue.hot.depth`, `outbox.queue.cold.depth`",
    "oldest_pending_age_seconds": "`outbox.lag.oldest.ms`",
}
"""And of outbox-java."""


def tables() -> str:
    """The list, in Markdown."""
    table = []
    for source in MetricSource:
        table += [f"| **{source.value}** | | | | | |\n", *(_row(each) for each in METRICS if each.source is source)]
    histograms = [each for each in METRICS if each.buckets]
    bounds = [f"- `{each.name}`: {', '.join(f'{bound:g}' for bound in each.buckets)}\n" for each in histograms]
    return "".join([HEAD, *table, HISTOGRAMS, *bounds])


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    others = (names.get(metric.name, "-") for names in (NAMASTACK, OUTBOX_JAVA))
    cells = (f"`{metric.name}`", metric.kind, labels, metric.meaning, *others)
    return f"| {' | '.join(cells)} |\n"
