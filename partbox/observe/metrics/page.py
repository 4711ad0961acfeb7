"""The page of the documentation that lists every metric; `partbox metrics --markdown` prints it."""

from collections.abc import Iterator

from partbox.observe.metrics.table import METRICS, Metric, MetricSource

HEAD = """\
# Metrics and health checks

The table on this page is generated: `partbox metrics --markdown > docs/metrics.md`.

```console
$ pip install 'partbox[http]'
$ partbox worker shop:outbox --http 127.0.0.1:9464
$ curl http://127.0.0.1:9464/metrics
```

One address per node shows the numbers of all its worker processes. `:9464` is this machine alone, `0.0.0.0:9464`
every network that it has: what is shown there are names of handlers, nodes and subscriptions, and numbers, never a
payload or an aggregate id. `PARTBOX_HTTP` and the setting `http` do the same as the option. Nothing at the first three
addresses changes anything.

| address | answers |
|---|---|
| `/metrics` | everything below |
| `/healthz` | 200 while the node lives, else 503: a restart would help |
| `/readyz` | 200 while the node can work, else 503: waiting may help |
| `/` | the live page; who has the setting `http_token` may act there |

The three that are for programs answer who asks by an IP address, by `localhost`, by a name without a dot (`node-1`), by
one that ends in `.svc`, `.local` or `.internal`, by the name of this machine, or by the one in `--http`. Other names
get a 403, for a page on the internet can have its own name point here: give yours in the setting `http_names`.

## Prometheus

```yaml
scrape_configs:
  - job_name: partbox
    honor_labels: true        # `instance` is the id of a worker process
    static_configs:
      - targets: ["node-1:9464", "node-2:9464"]
```

- Counters and histograms are those of a node: its living processes, and what its dead ones had counted until they
  died, `kill -9` included. They begin anew when the node does. Add nodes up, as in
  `sum by (subscription) (rate(partbox_delivered_total[1m]))`.
- Gauges of processes are those of the living ones.
- Numbers of the database are the same on every node, so that a dashboard works as long as one node does: take one of
  them, as in `max by (subscription) (partbox_records{status="pending"})`. A scrape costs the database one statement,
  and the answer lasts for a second or more, whoever asks. A scrape takes three seconds at most: of a database that is
  slower it shows what was seen within the last minute. While the database is away they are missing and
  `partbox_database_up` is 0; the numbers of the processes are still there.
- Of [several databases](operations.md#several-databases) (`--dsn A --dsn B`) each series but `scrape_seconds` says
  which one it is of by a label `database`: its name, with host and port where two have the same. With one database
  there is no such label. One that cannot be reached takes away its own numbers alone. The live page shows the first at
  the same address, and leads to the others.
- A handler that was registered after the node's start is counted as `other`. `on_unroutable` takes events without a
  handler.
- The prefix `partbox` is the setting `metrics_prefix`.

Metrics cost nothing unless somebody can see them.

### In an application

```python
import prometheus_client

from partbox import Outbox

outbox = Outbox(registry=prometheus_client.REGISTRY)
```

shows `partbox_published_total` in the application's own registry, and the numbers of the workers that it runs in its
process (`outbox.worker()`, `outbox.supervisor()`). Several outboxes with one registry are added up. What handlers
publish in worker processes is counted nowhere. The numbers of the database are shown by `partbox worker --http` alone.

## Health checks

`/healthz` fails only when the node's own loops are dead: its supervisor has ended, or has not turned for 30 s (five
leases, if those are longer), or no process has shown any life for four leases, and no handler runs in any. A backlog,
failing handlers, dead events and a database that is away or does not answer never fail it: a restart would help none of
them. It waits for nothing.

`/readyz` fails, with the reason, while

- no process has begun to work, or the node is stopping,
- no process holds its lease: no heartbeat came through within a lease,
- partitions of the node's subscription have had no owner for longer than two leases, though it is not paused,
- the schema in the database is not as this version needs it, or the node's subscription was dropped,
- five or more processes have died within a minute,
- one of several databases cannot be worked for: it cannot be reached, or its schema is missing or too old. `/healthz`
  does not fail for it.

With several databases each problem begins with the name of its own. It waits two seconds at most for the database. Both
answer with JSON: `problems` in words, and the backlog as it was seen last. Of an error of the database they show what
kind it is; its text is in the log (`partbox.look_failed`).

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

A kubelet does not come from this machine: there, `--http 0.0.0.0:9464` is needed. Workers take no requests, so a load
balancer has no use for them; readiness says in a rolling deploy when the next node may go.

## All metrics

`partbox_` is left out. The last two columns name what
[namastack-outbox](https://github.com/namastack/namastack-outbox) and outbox-java (its module `outbox-micrometer`)
call the same or the nearest thing; `-` stands for nothing of the kind.

| metric | type | labels | meaning | namastack-outbox | outbox-java |
|---|---|---|---|---|---|
"""

HISTOGRAMS = """
Upper bounds of the histograms' buckets, in seconds:

"""


def page() -> str:
    """The whole page, in Markdown."""
    return HEAD + "".join(_rows()) + HISTOGRAMS + "".join(_bounds())


def _rows() -> Iterator[str]:
    for source in MetricSource:
        yield f"| **{source.value}** | | | | | |\n"
        yield from (_row(metric) for metric in METRICS if metric.source is source)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    cells = (f"`{metric.name}`", metric.kind, labels, metric.meaning, metric.namastack, metric.outbox_java)
    return f"| {' | '.join(cells)} |\n"


def _bounds() -> Iterator[str]:
    for metric in METRICS:
        if metric.buckets:
            yield f"- `{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.buckets)}\n"
