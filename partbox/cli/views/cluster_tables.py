"""Tables of a subscription that `status` and `top` share: long-running handlers, limits and sinks."""

from partbox.cli.shell.output import ListColumn
from partbox.db.delivery.limits import HandlerLimit
from partbox.db.inspect.stats import Cluster, Instance, RunningHandler
from partbox.text.wording import find_node_names, format_age, format_brief_age, format_names, format_time, shorten_text

RUN_COLUMNS = ("running for long", "for", "event", "process")
SINK_COLUMNS = ("sink", "sent", "in flight", "acknowledged in", "sent again", "trouble")
CUT = 60  # characters of a name or an error


def list_run_rows(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """Return the table rows that show a subscription's long-running handlers, the longest first."""
    # A last row counts the handlers that are not listed.
    nodes = find_node_names(cluster.instances)
    runs = [(process, each) for process in cluster.instances for each in process.running]
    runs.sort(key=lambda run: -run[1].seconds)
    found = [_build_run_row(process, each, nodes[process.instance_id]) for process, each in runs]
    more = sum(process.running_more for process in cluster.instances)
    return [*found, *([(f"… {more:,} more", "", "", "")] if more else [])]


def _build_run_row(process: Instance, each: RunningHandler, node: str) -> tuple[str, str, str, str]:
    key = "" if each.aggregate_id is None else f" {each.aggregate_type} {each.aggregate_id}"
    event = f"{shorten_text(f'{each.event_type}{key}', CUT)}, record {each.record_id}"
    return (
        shorten_text(each.handler, CUT),
        format_age(each.seconds),
        event,
        f"{process.pid} on {shorten_text(node, CUT)}",
    )


def list_sink_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    # A row has the events sent and in flight, repeats and errors.
    return [
        (
            shorten_text(each.sink, CUT),
            f"{each.sent:,}",
            f"{each.in_flight:,}",
            format_brief_age(each.mean),
            f"{each.retries:,}",
            "" if each.error is None else f"for {format_age(each.failing)}: {shorten_text(each.error, CUT)}",
        )
        for each in cluster.sinks
    ]


def _format_longest(each: HandlerLimit) -> str:
    return format_names([f"{shorten_text(found.value, CUT)} ({found.waiting:,})" for found in each.values])


def _format_change(each: HandlerLimit) -> str:
    if each.open_for is not None:
        return f"open for {format_age(each.open_for)}"
    return (
        ""
        if each.change is None
        else f"{format_time(each.change.changed_at)} by {shorten_text(each.change.changed_by, CUT)}"
    )


LIMIT_COLUMNS = (
    ListColumn("limited handler", lambda each: shorten_text(each.name, CUT)),
    ListColumn("rate", lambda each: each.rate_text, "number"),
    ListColumn("at once", lambda each: each.at_once_text, "number"),
    ListColumn("for each", lambda each: shorten_text(each.by or "", CUT)),
    ListColumn("waiting", lambda each: f"{each.waiting:,}", "number"),
    ListColumn("the first for", lambda each: format_age(each.waited), "number"),
    ListColumn("the longest", _format_longest),
    ListColumn("set", _format_change),
)
