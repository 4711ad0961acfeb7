"""`partbox status`: prints the worker processes, their partitions, and the backlog."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import OutboxOptions, Subscription, flag, with_option_groups
from partbox.cli.shell.output import (
    build_list_table,
    build_table,
    escape_unprintable,
    format_age,
    format_count,
    format_time,
    make_console,
    print_answer,
    print_json,
    shorten_text,
)
from partbox.cli.shell.stopping import until_stopped
from partbox.cli.shell.watching import ClusterSample, Every, iter_samples, parse_interval
from partbox.cli.views.cluster_tables import LIMIT_COLUMNS, RUN_COLUMNS, SINK_COLUMNS, list_run_rows, list_sink_rows
from partbox.db.connect import connect
from partbox.db.inspect import stats
from partbox.db.schema import migrate
from partbox.db.schema.migrate import list_subscription_names
from partbox.doctor.phrases import WORKER_COMMAND
from partbox.settings import Settings
from partbox.text.printing import escape_json
from partbox.text.wording import find_node_names, format_command

if TYPE_CHECKING:
    from partbox.operations.stats import Rates

# Seconds. Counting a deep backlog takes longer than the statements of a worker may take.
QUERY_TIMEOUT = 30.0

NAME_WIDTH = 80  # characters of a name
COLUMNS = ("node", "pid", "state", "heartbeat", "partitions")

Watch = Annotated[bool, flag("Update until Ctrl-C.", "--watch")]
PrintSample = Callable[[ClusterSample], None]
Line = tuple[str, str]


@with_option_groups
def status(
    *, watch: Watch = False, every: Every = "1s", subscription: Subscription = "default", outbox: OutboxOptions
) -> None:
    """Show the worker processes, their partitions, and the pending and parked records.

    Pending records have not been consumed yet. Parked records could not be finished at once. With --watch, a terminal
    is redrawn at each update, and a pipe gets one table after the other, or a line of JSON each.

    Example: partbox status --dsn postgresql://localhost/shop --watch
    """
    pause = parse_interval(every)
    settings, json = outbox.load_settings(), outbox.json
    if watch:
        _watch_cluster(settings, subscription, pause, json)
        return
    with connect(build_dsn(settings), lease=QUERY_TIMEOUT, pooler=settings.pooler, name="partbox status") as conn:
        migrate.check_schema_version(conn, settings.schema_name)
        if not list_subscription_names(conn, settings.schema_name):
            _print_writer_only(settings.schema_name, json)
            return
        cluster = stats.read_cluster(conn, settings.schema_name, subscription)
    if json:
        print_json(_to_json(cluster, settings.drain_timeout))
    else:
        make_console().print(_build_tables(cluster, settings.drain_timeout))


def _watch_cluster(settings: Settings, subscription: str, pause: float, json: bool) -> None:
    from partbox.db.inspect.cached_overview import CachedOverview

    overview = CachedOverview(settings, lambda: build_dsn(settings), patience=QUERY_TIMEOUT, fresh=min(1.0, pause))
    with until_stopped(), closing(overview) as overview_cache:
        if not overview_cache.read_overview().clusters:
            _print_writer_only(settings.schema_name, json)
            return
        with _open_printer(json, settings.drain_timeout) as show:
            for sample in iter_samples(overview_cache, subscription, partial(Event().wait, pause)):
                show(sample)


@contextmanager
def _open_printer(json: bool, patience: float) -> Iterator[PrintSample]:
    # Samples are printed as JSON lines, as a live display on a terminal, or as blocks of text.
    from rich.live import Live

    out = make_console()
    if not json and sys.stdout.isatty() and not out.is_dumb_terminal:
        with Live(console=out, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            yield lambda sample: live.update(_render_live(sample, patience), refresh=True)
    else:
        yield lambda sample: _print_sample(sample, patience, json)


def _print_writer_only(schema: str, json: bool) -> None:
    said = f"schema {schema} is writer-only: it has no subscription, so no worker delivers its events"
    purge = "`partbox purge --every 30m` keeps the log small"
    print_answer(json, {"schema": schema, "subscription": None, "writer_only": True}, f"{said}; {purge}")


def _print_sample(sample: ClusterSample, patience: float, json: bool) -> None:
    # A problem is printed to standard error.
    out, rates = make_console(), sample.rates
    if sample.problem is not None:
        typer.echo(f"partbox: {escape_unprintable(sample.problem)}", err=True)
    elif json:
        given = {
            "at": sample.at,
            "published_per_second": rates and rates.published,
            "delivered_per_second": rates and rates.delivered,
        }
        typer.echo(escape_json(orjson.dumps(given | _to_json(sample.cluster, patience)).decode()))
        sys.stdout.flush()
    else:
        out.print(format_time(sample.at), _build_tables(sample.cluster, patience, rates), "", sep="\n")
        out.file.flush()


def _render_live(sample: ClusterSample, patience: float) -> RenderableType:
    foot = Text(f"{sample.at:%H:%M:%SZ}, Ctrl-C ends it", "bright_black")
    if sample.problem is not None:
        foot = Text(f"as of {sample.at:%H:%M:%SZ}: {escape_unprintable(sample.problem)}", "bold red")
    return Group(_build_tables(sample.cluster, patience, sample.rates), Text(), foot)


def _to_json(cluster: stats.Cluster, patience: float) -> dict[str, object]:
    totals = ("unowned", "pending", "pending_max", "exact", "oldest_age")
    stop = {"waits": patience, "again": _count_rerun(cluster)}
    return asdict(cluster) | {name: getattr(cluster, name) for name in totals} | {"stop": stop}


def _build_tables(cluster: stats.Cluster, patience: float, rates: "Rates | None" = None) -> RenderableType:
    # `patience` is the number of seconds for which a stopping process waits.
    summary = build_table(("", ""), [*_list_summary_lines(cluster, patience), *_list_backlog_lines(cluster, rates)])
    summary.show_header = False
    parts: list[RenderableType] = []
    if cluster.instances:
        nodes = find_node_names(cluster.instances)
        rows = (_build_row(each, nodes[each.instance_id]) for each in cluster.instances)
        parts += [build_table(COLUMNS, rows, COLUMNS[3:], COLUMNS[1:3]), Text()]
    if runs := list_run_rows(cluster):
        parts += [build_table(RUN_COLUMNS, runs, RUN_COLUMNS[1:2]), Text()]
    if cluster.limits:
        parts += [build_list_table(cluster.limits, LIMIT_COLUMNS), Text()]
    if sent := list_sink_rows(cluster):
        parts += [build_table(SINK_COLUMNS, sent, SINK_COLUMNS[1:5]), Text()]
    return Group(*parts, summary)


def _build_row(each: stats.Instance, node: str) -> tuple[str, ...]:
    host = "" if each.node == each.hostname else f" on {shorten_text(each.hostname, NAME_WIDTH)}"
    where = f"{shorten_text(node, NAME_WIDTH)}{host}"
    return where, str(each.pid), each.state, f"{format_age(each.heartbeat_age)} ago", str(each.partitions)


def _list_summary_lines(cluster: stats.Cluster, patience: float) -> Iterator[Line]:
    # A command has a line of its own, so that a narrow terminal does not break it.
    schema, subscription = cluster.schema, cluster.subscription
    yield "subscription", f"{subscription} in schema {schema}"
    if cluster.paused:
        yield "paused", f"since {format_time(cluster.paused_at)}: nothing is delivered"
        yield "", f"{format_command('subscription resume', schema, None, subscription)} resumes it"
    if cluster.instances:
        nodes = len(set(find_node_names(cluster.instances).values()))
        versions = " and ".join(sorted({instance.version for instance in cluster.instances}))
        yield "processes", f"{len(cluster.instances)} on {nodes} node{'s' if nodes > 1 else ''}, version {versions}"
        if waits := [each.lifespan for each in cluster.instances if each.lifespan is not None]:
            longest = max(waits, key=lambda each: each.seconds)
            where = f"the lifespan {shorten_text(longest.lifespan, NAME_WIDTH)}, for {format_age(longest.seconds)}"
            yield (
                "starting",
                f"{format_count(len(waits), 'process')} in {where}: "
                "nothing is delivered there before the lifespan yields",
            )
        again = _count_rerun(cluster)
        yield (
            "stop now",
            f"waits up to {format_age(patience)}, {format_count(again, 'event')} would run again"
            if again
            else "waits for running handlers, none older than 10 s; no event would run again",
        )
    else:
        yield "processes", f"none: start some with {format_command(WORKER_COMMAND, schema, subscription)}"
    unowned = f"{cluster.unowned} without an owner{', while it is paused' if cluster.paused else ''}"
    yield "partitions", f"{len(cluster.partitions)}, {unowned if cluster.unowned else 'all owned'}"


def _list_backlog_lines(cluster: stats.Cluster, rates: "Rates | None") -> Iterator[Line]:
    schema, subscription = cluster.schema, cluster.subscription
    about = "" if cluster.exact else "about "
    most = f"at most {about}{cluster.pending_max:,} in a partition"
    pending = f"{about}{cluster.pending:,}, {most}, the oldest published {format_age(cluster.oldest_age)} ago"
    yield "pending", pending if cluster.pending else "none"
    yield "parked", ", ".join(f"{count:,} {state}" for state, count in cluster.waiting.items()) or "none"
    blocked, dead = cluster.blocked_keys, cluster.parked.get("dead", 0)
    wait = "waiting for an event that cannot be finished now"
    yield "blocked", f"{format_count(blocked, 'aggregate')}, {wait}" if blocked else "none"
    if blocked:
        yield "", f"{format_command('blocked list', schema, subscription)} names them"
    yield "dead", f"{format_count(dead, 'event')}, not tried again unless replayed" if dead else "none"
    if dead:
        yield "", f"{format_command('dead list', schema, subscription)} shows them"
    if discarded := cluster.parked.get("discarded", 0):
        yield "discarded", f"{format_count(discarded, 'event')}, by an operator, or cancelled before delivery"
    yield "completed", f"about {cluster.completed:,} of the log" if cluster.completed else "none"
    # If there is no process, the remedy is printed already.
    has_unowned = cluster.unowned > 0 and bool(cluster.instances) and not cluster.paused
    has_delayed = any(each.running or each.expired or each.lifespan for each in cluster.instances)
    if has_unowned or has_delayed or blocked or dead:
        yield "trouble", f"{format_command('doctor', schema)} says why, and what to do"
    if rates is not None:
        yield "rates", f"about {rates.published:,.0f}/s published, {rates.delivered:,.0f}/s delivered"


def _count_rerun(cluster: stats.Cluster) -> int:
    """Return how many events would run again if all processes stopped now, as far as known."""
    # Only handlers that have run for over ten seconds are known.
    return sum(len(each.running) + each.running_more for each in cluster.instances)
