"""The handlers of a subscription that run for long, as `status` and `top` show them."""

from partbox.db.inspect.stats import Cluster, Instance, Running
from partbox.text.nodes import named
from partbox.text.wording import age, in_short

COLUMNS = ("running for long", "for", "event", "process")
CUT = 60  # characters of a name


def rows(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """Handler, time, event and process of each, the longest first; one more row counts those without a name."""
    nodes = named(cluster.instances)
    runs = [(process, each) for process in cluster.instances for each in process.running]
    runs.sort(key=lambda run: -run[1].seconds)
    found = [_row(process, each, nodes[process.instance_id]) for process, each in runs]
    more = sum(process.running_more for process in cluster.instances)
    return [*found, *([(f"… {more:,} more", "", "", "")] if more else [])]


def _row(process: Instance, each: Running, node: str) -> tuple[str, str, str, str]:
    key = "" if each.aggregate_id is None else f" {each.aggregate_type} {each.aggregate_id}"
    event = f"{in_short(f'{each.event_type}{key}', CUT)}, record {each.record_id}"
    return in_short(each.handler, CUT), age(each.seconds), event, f"{process.pid} on {in_short(node, CUT)}"
