"""`partbox metrics`: the names, types, labels and meanings of everything that `/metrics` shows."""

from typing import Annotated

import typer

from partbox.cli.shell.flags import load
from partbox.cli.shell.options import Json, flag
from partbox.cli.shell.output import console, print_json, table
from partbox.observe.metrics.docs_page import tables
from partbox.observe.metrics.table import METRICS

Markdown = Annotated[bool, flag("Print the documentation of all metrics instead.", "--markdown")]


def metrics(json: Json = False, markdown: Markdown = False) -> None:
    """List the metrics that `partbox worker --http` serves for Prometheus.

    Example: partbox metrics
    """
    if markdown:
        typer.echo(tables(), nl=False)
        return
    prefix = load().metrics_prefix
    rows = [(f"{prefix}_{each.name}", each.kind, ", ".join(each.labels), each.meaning) for each in METRICS]
    if json:
        print_json([dict(zip(("name", "type", "labels", "meaning"), row, strict=True)) for row in rows])
    else:
        console().print(table(("metric", "type", "labels", "meaning"), rows, whole=("metric", "type")))
