"""Tables of a subscription that `status` and `top` share: long-running handlers, limits and sinks."""

from partbox.cli.shell.output import ListColumn
from partbox.db.delivery.limits import HandlerLimit
from partbox.db.inspect.stats import Cluster, Instance, RunningHandler
from partbox.text.wording import age, brief, in_short, moment, node_names, several

RUN_COLUMNS = ("running for long", "for", "event", "process")
SINK_COLUMNS = ("sink", "sent", "in flight", "acknowledged in", "sent again", "trouble")
CUT = 60  # characters of a name or an error


def run_rows(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """Return the table rows that show a subscription's long-running handlers, the longest first."""
    # A last row counts the handlers that are not listed.
    nodes = node_names(cluster.instances)
    runs = [(process, each) for process in cluster.instances for each in process.running]
    runs.sort(key=lambda run: -run[1].seconds)
    found = [_run_row(process, each, nodes[process.instance_id]) for process, each in runs]
    more = sum(process.running_more for process in cluster.instances)
    return [*found, *([(f"… {more:,} more", "", "", "")] if more else [])]


def _run_row(process: Instance, each: RunningHandler, node: str) -> tuple[str, str, str, str]:
    key = "" if each.aggregate_id is None else f" {each.aggregate_type} {each.aggregate_id}"
    event = f"{in_short(f'{each.event_type}{key}', CUT)}, record {each.record_id}"
    return in_short(each.handler, CUT), age(each.seconds), event, f"{process.pid} on {in_short(node, CUT)}"


def sink_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    # A row has the events sent and in flight, repeats and errors.
    return [
        (
            in_short(each.sink, CUT),
            f"{each.sent:,}",
            f"{each.in_flight:,}",
            brief(each.mean),
            f"{each.retries:,}",
            "" if each.error is None else f"for {age(each.failing)}: {in_short(each.error, CUT)}",
        )
        for each in cluster.sinks
    ]


def _longest(each: HandlerLimit) -> str:
    return several([f"{in_short(found.value, CUT)} ({found.waiting:,})" for found in each.values])


def _set(each: HandlerLimit) -> str:
    return "" if each.change is None else f"{moment(each.change.changed_at)} by {in_short(each.change.changed_by, CUT)}"


LIMIT_COLUMNS = (
    ListColumn("limited handler", lambda each: in_short(each.handler, CUT)),
    ListColumn("rate", lambda each: each.rate_text, "number"),
    ListColumn("at once", lambda each: each.at_once_text, "number"),
    ListColumn("for each", lambda each: in_short(each.by or "", CUT)),
    ListColumn("waiting", lambda each: f"{each.waiting:,}", "number"),
    ListColumn("the first for", lambda each: age(each.waited), "number"),
    ListColumn("the longest", _longest),
    ListColumn("set", _set),
)
