"""`partbox status`: who works, who holds what, and what is left to do."""

from dataclasses import asdict

import typer

from partbox.cli.database import database
from partbox.cli.options import Dsn, Json, Schema, Subscription
from partbox.cli.output import age, console, print_json, table
from partbox.db import migrate, stats
from partbox.db.connect import connect
from partbox.settings import load

PATIENCE = 30.0  # seconds; counting a deep backlog takes longer than a worker's statements may

COLUMNS = ("node", "pid", "state", "heartbeat", "partitions")


def status(dsn: Dsn = None, schema: Schema = None, subscription: Subscription = "default", json: Json = False) -> None:
    """Show the worker processes, their partitions, and what is pending or parked.

    Pending counts the records that nobody has consumed yet; parked ones are those that could not be finished at once.

    Example: partbox status --dsn postgresql://localhost/shop
    """
    settings = load(flags={"dsn": dsn, "schema": schema})
    with connect(database(settings), lease=PATIENCE, pooler=settings.pooler, name="partbox status") as conn:
        migrate.check(conn, settings.schema_name)
        if not stats.subscriptions(conn, settings.schema_name):
            _print_writer_only(settings.schema_name, json)
            return
        cluster = stats.cluster(conn, settings.schema_name, subscription)
    if json:
        print_json(_plain(cluster))
    else:
        _print(cluster)


def _print_writer_only(schema: str, json: bool) -> None:
    if json:
        print_json({"schema": schema, "subscription": None, "writer_only": True})
    else:
        typer.echo(
            f"schema {schema} is writer-only: no subscription, and nothing is delivered from here; "
            "`partbox purge --every 30m` keeps it small"
        )


def _plain(cluster: stats.Cluster) -> dict[str, object]:
    totals = ("unowned", "pending", "pending_max", "exact", "oldest_age")
    return asdict(cluster) | {name: getattr(cluster, name) for name in totals}


def _print(cluster: stats.Cluster) -> None:
    out = console()
    if cluster.instances:
        out.print(table(COLUMNS, map(_row, cluster.instances), COLUMNS[3:], COLUMNS[1:3]))
        out.print()
    summary = table(("", ""), _summary(cluster))
    summary.show_header = False
    out.print(summary)


def _row(each: stats.Instance) -> tuple[str, ...]:
    state = "expired" if each.expired else "draining" if each.draining else "working"
    node = each.node if each.node == each.hostname else f"{each.node} ({each.hostname})"
    return node, str(each.pid), state, age(each.heartbeat_age), str(each.partitions)


def _summary(cluster: stats.Cluster) -> list[tuple[str, str]]:
    return [
        ("subscription", f"{cluster.subscription} in schema {cluster.schema}{', paused' if cluster.paused else ''}"),
        ("processes", _processes(cluster)),
        ("partitions", f"{len(cluster.partitions)}, {cluster.unowned} unowned"),
        ("pending", _pending(cluster)),
        ("parked", ", ".join(f"{count:,} {state}" for state, count in cluster.parked.items()) or "none"),
    ]


def _processes(cluster: stats.Cluster) -> str:
    if not cluster.instances:
        return "none: start some with `partbox worker MODULE:OUTBOX`"
    nodes = len({instance.node for instance in cluster.instances})
    versions = " and ".join(sorted({instance.version for instance in cluster.instances}))
    return f"{len(cluster.instances)} on {nodes} node{'s' if nodes > 1 else ''}, version {versions}"


def _pending(cluster: stats.Cluster) -> str:
    if not cluster.pending:
        return "none"
    about = "" if cluster.exact else "about "
    return (
        f"{about}{cluster.pending:,} in all, {about}{cluster.pending_max:,} at most in a partition, "
        f"the oldest published {age(cluster.oldest_age)} ago"
    )
