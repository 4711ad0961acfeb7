"""The screen of `partbox top`."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partbox.cli.shell.output import format_error
from partbox.cli.shell.watching import ClusterSample
from partbox.cli.views.cluster_tables import RUN_COLUMNS, list_run_rows
from partbox.db.inspect.stats import Instance
from partbox.db.operator.blocked import BlockedKey
from partbox.terminal import cluster_view
from partbox.terminal.cluster_view import DIM, ROOMY, SIDE, ProcessColumn
from partbox.terminal.roster import Roster
from partbox.text.printing import escape_unprintable
from partbox.text.wording import find_node_names, format_age, format_count, shorten_text

BESIDE = 62  # columns from which the numbers fit beside the map
FULL = 56  # columns that the whole table of processes needs
NODES = 40  # columns from which the table names nodes
TOTALS = 8  # lines
ROWS = SIDE - TOTALS - 2  # lines of the processes beside the map
FEW = 4  # lines of the processes below the map
LESS = 20  # characters of a name that stands for others as well
SHORT = 200  # characters of an id or an error that are rendered; the terminal cuts the rest


@dataclass(frozen=True, slots=True)
class TopFrame:
    """All data that one screen of `partbox top` shows.

    `moved_partitions` are partitions that have just changed their owner."""

    sample: ClusterSample
    roster: Roster
    moved_partitions: frozenset[int]
    blocked_keys: Sequence[BlockedKey]


def render_top(top_frame: TopFrame, width: int, height: int) -> RenderableType:
    beside = width >= BESIDE
    most, taken = (ROWS, SIDE) if beside else (FEW, SIDE + TOTALS + 7)
    cluster = top_frame.sample.cluster
    body = cluster_view.build_body(
        cluster,
        top_frame.roster,
        top_frame.moved_partitions,
        lambda room: _render_numbers(top_frame, room, most),
        width,
        BESIDE,
    )
    room = max(0, height - taken - 4)
    runs = _render_long_runs(top_frame, width >= ROOMY, room // 2 if top_frame.blocked_keys else room)
    blocked = _render_blocked(top_frame, width >= ROOMY, room - sum(each.row_count + 1 for each in runs))
    return Group(_render_title(top_frame), Text(), body, Text(), *runs, *blocked)


def _render_title(top_frame: TopFrame) -> RenderableType:
    sample = top_frame.sample
    cluster = sample.cluster
    if sample.problem is not None:
        return Text(f"as of {sample.at:%H:%M:%SZ}: {_shorten_text(sample.problem)}", "bold red")
    name = _shorten_text(f"subscription {cluster.subscription} in schema {cluster.schema}")
    paused = ("  PAUSED", "bold yellow") if cluster.paused else ""
    return cluster_view.build_heading(
        Text.assemble(("partbox top", "bold"), f"  {name}", paused),
        Text.assemble(f"{sample.at:%H:%M:%SZ}", ("  q quits", DIM)),
    )


def _render_numbers(top_frame: TopFrame, width: int, most: int) -> RenderableType:
    if not top_frame.sample.cluster.instances:
        said = Text("no worker process: start some with\n`partbox worker MODULE:OUTBOX`", "bold red")
        return Group(said, Text(), _render_totals(top_frame.sample))
    return Group(_render_processes(top_frame, width, most), Text(), _render_totals(top_frame.sample))


def _render_processes(top_frame: TopFrame, width: int, most: int) -> Table:
    columns = [ProcessColumn("pid"), ProcessColumn("owns"), ProcessColumn("", SHORT)]
    if width >= NODES:
        columns.insert(0, ProcessColumn("node", 20 if width >= FULL else 14))
    if width >= FULL:
        columns.insert(-1, ProcessColumn("heartbeat"))
    found = top_frame.sample.cluster.instances
    nodes = find_node_names(found)
    cells = ((each, _build_cells(each, nodes[each.instance_id])) for each in found)
    rows = [(top_frame.roster.find_badge(each.instance_id), [its[name] for name, _ in columns]) for each, its in cells]
    return cluster_view.build_process_table(columns, rows, most)


def _build_cells(each: Instance, node: str) -> dict[str, RenderableType]:
    beat = f"{each.heartbeat_age:.1f} s ago" if each.heartbeat_age < 10 else f"{format_age(each.heartbeat_age)} ago"
    return {
        "node": Text(_shorten_text(node)),
        "pid": str(each.pid),
        "owns": str(each.partitions),
        "heartbeat": beat,
        "": Text(each.state, "bold red" if each.expired else "yellow") if each.state != "working" else "",
    }


def _render_totals(sample: ClusterSample) -> Table:
    cluster, rates = sample.cluster, sample.rates
    dead = cluster.parked.get("dead", 0)
    away = cluster.unowned and not cluster.paused
    table = cluster_view.build_totals()
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value, style in (
        ("published", f"{rates.published:,.0f}/s" if rates else "-", "bold"),
        ("delivered", f"{rates.delivered:,.0f}/s" if rates else "-", "bold"),
        ("pending", f"{'' if cluster.exact else 'about '}{cluster.pending:,}", "bold"),
        ("oldest", f"published {format_age(cluster.oldest_age)} ago" if cluster.oldest_age is not None else "-", ""),
        ("parked", ", ".join(f"{count:,} {state}" for state, count in cluster.waiting.items()) or "0", ""),
        ("dead", f"{dead:,}", "bold red" if dead else ""),
        ("blocked", format_count(cluster.blocked_keys, "aggregate"), "bold yellow" if cluster.blocked_keys else ""),
        ("unowned", f"{cluster.unowned} of {len(cluster.partitions)}", "bold red" if away else ""),
    ):
        table.add_row(name, Text(value, style))
    return table


def _render_long_runs(top_frame: TopFrame, roomy: bool, room: int) -> list[Table]:
    rows = list_run_rows(top_frame.sample.cluster)
    if room < 2 or not rows:
        return []
    table = cluster_view.build_listing(expand=True)
    name, length, event, process = RUN_COLUMNS
    table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=32, style="bold yellow")
    table.add_column(length, justify="right", no_wrap=True)
    table.add_column(event, no_wrap=True, overflow="ellipsis", ratio=1)
    if roomy:
        table.add_column(process, no_wrap=True, overflow="ellipsis", max_width=24)
    shown = len(table.columns)
    for cells in rows[: room - 1]:
        table.add_row(*(Text(_shorten_text(cell)) for cell in cells[:shown]))
    return [table]


def _render_blocked(top_frame: TopFrame, roomy: bool, room: int) -> list[RenderableType]:
    if room < 2 or not top_frame.blocked_keys:
        return []
    table = cluster_view.build_listing(expand=True)
    table.add_column("blocked the longest", no_wrap=True, overflow="ellipsis", max_width=32)
    for column in ("since", "attempts", "behind it") if roomy else ("since",):
        table.add_column(column, justify="right", no_wrap=True)
    if roomy:
        table.add_column("state", no_wrap=True)
    table.add_column("error", no_wrap=True, overflow="ellipsis", ratio=1)
    for keys in _group_alike(top_frame.blocked_keys)[: room - 1]:
        first, others = keys[0], len(keys) - 1
        since = format_age(max(0.0, (top_frame.sample.at - first.blocked_since).total_seconds()))
        name = _shorten_text(f"{first.aggregate_type} {first.aggregate_id}")
        aggregate = Text(f"{shorten_text(name, LESS)} and {others:,} more" if others else name)
        behind = sum(each.followers for each in keys)
        more = (str(first.attempts), f"{behind:,}", first.state) if roomy else ()
        table.add_row(aggregate, since, *more, Text(_shorten_text(format_error(first))))
    return [table]


def _group_alike(keys: Sequence[BlockedKey]) -> list[list[BlockedKey]]:
    # Keys are alike if they wait for the same reason: one open circuit (a handler that is stopped after errors) may
    # block any number of keys.
    groups: dict[tuple[str, ...], list[BlockedKey]] = {}
    for key in keys:
        why = "" if key.state == "deferred" else key.error_type or key.error or ""
        groups.setdefault((key.state, key.event_type, why), []).append(key)
    return list(groups.values())


def _shorten_text(text: str) -> str:
    return escape_unprintable(shorten_text(text, SHORT))
