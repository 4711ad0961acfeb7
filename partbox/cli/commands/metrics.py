"""`partbox metrics`: the names, types, labels and meanings of all metrics under `/metrics`."""

from typing import Annotated

import typer

from partbox.cli.shell.flags import load_settings
from partbox.cli.shell.options import Json, flag
from partbox.cli.shell.output import build_table, make_console, print_json
from partbox.observe.metrics.table import METRICS, Metric, MetricSource

Markdown = Annotated[bool, flag("Print the documentation of all metrics instead.", "--markdown")]

HEAD = """\
## All metrics

`partbox_` is left out.

| metric | type | labels | meaning |
|---|---|---|---|
"""

HISTOGRAMS = "\nUpper bounds of the histograms' buckets, in seconds:\n\n"


def metrics(json: Json = False, markdown: Markdown = False) -> None:
    """List the metrics that `partbox worker --http` serves for Prometheus.

    Example: partbox metrics
    """
    if markdown:
        typer.echo(render_page(), nl=False)
        return
    prefix = load_settings().metrics_prefix
    rows = [(f"{prefix}_{each.name}", each.kind, ", ".join(each.labels), each.meaning) for each in METRICS]
    if json:
        print_json([dict(zip(("name", "type", "labels", "meaning"), row, strict=True)) for row in rows])
    else:
        make_console().print(build_table(("metric", "type", "labels", "meaning"), rows, whole=("metric", "type")))


def render_page() -> str:
    """Return the list at the end of `docs/metrics.md`, in Markdown."""
    table = []
    for source in MetricSource:
        table += [f"| **{source.value}** | | | |\n", *(_format_row(each) for each in METRICS if each.source is source)]
    histograms = [each for each in METRICS if each.buckets]
    bounds = [f"- `{each.name}`: {', '.join(f'{bound:g}' for bound in each.buckets)}\n" for each in histograms]
    return "".join([HEAD, *table, HISTOGRAMS, *bounds])


def _format_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |\n"
