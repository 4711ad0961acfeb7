"""The page of the documentation that lists every metric; `partbox metrics --markdown` prints it."""

from partbox.observe.metrics.table import METRICS, Metric, MetricSource

HEAD = """\
# Metrics and health checks

The table on this page is generated: `partbox metrics --markdown > docs/metrics.md`.

```console
$ pip install 'partbox[http]'
$ partbox worker shop:outbox --http 127.0.0.1:9464
$ curl http://127.0.0.1:9464/metrics
```

One address per node shows the numbers of all its worker processes. `:9464` listens on this machine alone,
`0.0.0.0:9464` on all its networks: shown are names of handlers, nodes and subscriptions, and numbers, never a payload
or an aggregate id. `PARTBOX_HTTP` and the setting `http` do the same as the option. The first three addresses are
read-only.

| address | answers |
|---|---|
| `/metrics` | everything below |
| `/healthz` | 200 while the node lives, else 503: a restart would help |
| `/readyz` | 200 while the node can work, else 503: waiting may help |
| `/` | the live page; with the token of the setting `http_token` one may act there |

The first three answer only requests to an IP address, to `localhost`, to a name without a dot (`node-1`), to one that
ends in `.svc`, `.local` or `.internal`, to the name of this machine, or to the one in `--http`. Other names get a 403,
because a page on the internet can point its own name here: add yours in the setting `http_names`.

## Prometheus

```yaml
scrape_configs:
  - job_name: partbox
    honor_labels: true        # `instance` is the id of a worker process
    static_configs:
      - targets: ["node-1:9464", "node-2:9464"]
```

- Counters and histograms are those of a node: its living processes, and the counts of its dead ones up to their death,
  `kill -9` included. They start again from 0 with the node. Sum over nodes, as in
  `sum by (subscription) (rate(partbox_delivered_total[1m]))`.
- Gauges of processes are those of the living ones.
- Metrics of the database are the same on every node, so a dashboard works as long as one node does: take one of them,
  as in `max by (subscription) (partbox_records{status="pending"})`. A scrape costs the database one statement,
  whose answer is cached for a second or more. Of more than 50 subscriptions the series with a label `partition` are
  those of 50: the node's own, then those with processes; what is pending in the others is estimated. A scrape takes
  three seconds at most: for a slower database it shows what was seen within the last minute. While the database is
  away these metrics are missing and `partbox_database_up` is 0; those of the processes are still there.
- With [several databases](operations.md#several-databases) (`--dsn A --dsn B`) each series but `scrape_seconds` has a
  label `database`: its name, with host and port if two have the same name. With one database there is no such label.
  Only the metrics of a database that cannot be reached are missing. The live page shows the first database at the same
  address, and links to the others.
- A handler registered after the node's start is counted as `other`. Events without a handler are counted under
  `on_unroutable`.
- The prefix `partbox` is the setting `metrics_prefix`.

Metrics cost nothing unless they are served, or shown in one of the ways below.

### In an application

```python
import prometheus_client

from partbox import Outbox

outbox = Outbox(registry=prometheus_client.REGISTRY)
```

shows `partbox_published_total` in the application's own registry, and the numbers of the workers that it runs in its
process (`outbox.worker()`, `outbox.supervisor()`). Several outboxes with one registry are summed. Events that handlers
publish in worker processes are not counted. Only `partbox worker --http` shows metrics of the database.

## OpenTelemetry

```
pip install 'partbox[otel]' opentelemetry-sdk
```

```python
from uuid import uuid4

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from partbox import Outbox
from partbox.observe.metering import Metering

reader = PeriodicExportingMetricReader(ConsoleMetricExporter())
process = Resource.create({"service.name": "shop", "service.instance.id": str(uuid4())})
metrics.set_meter_provider(MeterProvider([reader], process))

outbox = Outbox()
outbox.observe(Metering())
```

shows the same metrics at the meter provider, with or without `--http`: `partbox.delivered` is
`partbox_delivered_total`, `partbox.lag_seconds` is `partbox_lag_seconds`; labels are attributes. Exporters for
Prometheus make the names of the table of them, so the [dashboards](grafana.md) work with both. A provider may also be
given, as for [traces](tracing.md): `Metering(provider)`, or `Metering(make_provider)` for worker processes of
`outbox.run()`.

- Counters and gauges are asked for when the provider exports, and cost nothing else: of `partbox worker` its supervisor
  shows them for all its processes, killed ones included, and those of the databases. In an application they are those
  of the workers in its process. With several databases those of processes are summed.
- Histograms cannot be asked for. Each worker process records its own, one measurement for each event, and exports
  them itself: give each process its own `service.instance.id`, as above. A process that is killed takes with it what it
  has measured since its last export.
- `partbox.published` is counted in each process, so what handlers publish is in it.

## Health checks

`/healthz` fails only when the node's own loops are dead: its supervisor has ended, or has not turned for 30 s (five
leases, if those are longer), or no process has shown any life for four leases, and no handler runs in any. A backlog,
failing handlers, dead events and a database that is away or does not answer never fail it: a restart would not help.
It waits for nothing.

`/readyz` fails, with the reason, while

- no process has begun to work, or the node is stopping,
- no process holds its lease: no heartbeat came through within a lease,
- partitions of the node's subscription have had no owner for longer than two leases, though it is not paused,
- the schema in the database is not as this version needs it, or the node's subscription was dropped,
- five or more processes have died within a minute,
- one of several databases cannot be worked for: it cannot be reached, or its schema is missing or too old. `/healthz`
  does not fail for it.

With several databases each problem begins with the name of its database. `/readyz` waits two seconds at most for the
database. Both answer with JSON: `problems` in words, and the backlog as last seen. Of a database error they show only
the type; its text is in the log (`partbox.look_failed`).

```yaml
# Kubernetes
livenessProbe:
  httpGet: { path: /healthz, port: 9464 }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /readyz, port: 9464 }
  periodSeconds: 10
  timeoutSeconds: 5           # /readyz waits for two
```

A kubelet's requests come from outside: use `--http 0.0.0.0:9464` there. Workers take no requests, so a load balancer
has no use for them; in a rolling deploy readiness tells when the next node may be replaced.

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


def page() -> str:
    """The whole page, in Markdown."""
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
