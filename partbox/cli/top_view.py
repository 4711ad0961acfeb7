"""What `partbox top` draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partbox.cli import long_runs
from partbox.cli.watching import Sighting
from partbox.db.blocked import BlockedKey
from partbox.db.stats import Cluster, Instance
from partbox.rules.nodes import named
from partbox.rules.printing import printable
from partbox.rules.wording import age, counted, in_short
from partbox.terminal.grid import SIDE, badge, grid
from partbox.terminal.roster import Roster

BESIDE = 62  # columns from which the numbers have room beside the map
ROOMY = 80  # columns from which blocked aggregates are shown with everything that is known
WIDE = 110  # columns from which the map's cells are three wide
FULL = 56  # columns that the whole table of processes needs
COLUMNS = {"node": 40, "pid": 0, "owns": 0, "heartbeat": FULL}  # of that table, each from so many on
GAP = 3
TOTALS = 8  # lines
LESS = 20  # characters of a name that stands for others as well
SHORT = 200  # characters of an id or an error that are looked at; the terminal cuts the rest
DIM = "bright_black"


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is shown of one moment; `moved` are partitions that have just changed owner."""

    sighting: Sighting
    roster: Roster
    moved: frozenset[int]
    blocked: Sequence[BlockedKey]


def picture(scene: Scene, width: int, height: int) -> RenderableType:
    """The whole view, for a terminal of this size."""
    if width >= BESIDE:
        body, taken = _beside(scene, width), SIDE
    else:
        body, taken = Group(_grid(scene, 2), Text(), _numbers(scene, width, 4)), SIDE + TOTALS + 7
    room = max(0, height - taken - 4)
    runs = _long_runs(scene, width >= ROOMY, room // 2 if scene.blocked else room)
    blocked = _blocked(scene, width >= ROOMY, room - sum(each.row_count + 1 for each in runs))
    return Group(_title(scene), Text(), body, Text(), *runs, *blocked)


def _title(scene: Scene) -> RenderableType:
    sighting = scene.sighting
    cluster = sighting.cluster
    if sighting.complaint is not None:
        return Text(f"as of {sighting.at:%H:%M:%SZ}: {_short(sighting.complaint)}", "bold red")
    title = Table.grid(expand=True, padding=(0, 1, 0, 0))
    title.add_column(no_wrap=True, overflow="ellipsis")
    title.add_column(justify="right", no_wrap=True)
    name = _short(f"subscription {cluster.subscription} in schema {cluster.schema}")
    paused = ("  PAUSED", "bold yellow") if cluster.paused else ""
    title.add_row(
        Text.assemble(("partbox top", "bold"), f"  {name}", paused),
        Text.assemble(f"{sighting.at:%H:%M:%SZ}", ("  q quits", DIM)),
    )
    return title


def _grid(scene: Scene, cell: int) -> Text:
    living = {each.instance_id for each in scene.sighting.cluster.instances}
    owners = [each.owner if each.owner in living else None for each in scene.sighting.cluster.partitions]
    return grid(owners, scene.roster, scene.moved, cell)


def _beside(scene: Scene, width: int) -> RenderableType:
    """The map and the numbers to the right of it."""
    cell = 3 if width >= WIDE else 2
    body = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    body.add_column(width=SIDE * cell)
    body.add_column()
    body.add_row(_grid(scene, cell), _numbers(scene, width - SIDE * cell - GAP, SIDE - TOTALS - 2))
    return body


def _numbers(scene: Scene, width: int, room: int) -> RenderableType:
    if not scene.sighting.cluster.instances:
        said = Text("no worker process: start some with\n`partbox worker MODULE:OUTBOX`", "bold red")
        return Group(said, Text(), _totals(scene.sighting))
    return Group(_processes(scene, width, room), Text(), _totals(scene.sighting))


def _processes(scene: Scene, width: int, room: int) -> Table:
    """With the node where there is room for it, and with the heartbeat where there is more."""
    columns = [name for name, least in COLUMNS.items() if width >= least]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM)
    table.add_column("", no_wrap=True)
    for column in columns:
        if column == "node":
            table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=20 if width >= FULL else 14)
        else:
            table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    found = scene.sighting.cluster.instances
    shown = found if len(found) <= room else found[: room - 1]
    nodes = named(found)
    for each in shown:
        cells = _cells(each, nodes[each.instance_id])
        table.add_row(badge(scene.roster.face(each.instance_id)), *(cells[column] for column in columns), _state(each))
    if left := len(found) - len(shown):
        table.add_row("…", Text(f"{left} more", DIM))
    return table


def _cells(each: Instance, node: str) -> dict[str, RenderableType]:
    beat = f"{each.heartbeat_age:.1f} s ago" if each.heartbeat_age < 10 else f"{age(each.heartbeat_age)} ago"
    return {"node": Text(_short(node)), "pid": str(each.pid), "owns": str(each.partitions), "heartbeat": beat}


def _state(each: Instance) -> Text:
    return Text(each.state, "bold red" if each.expired else "yellow") if each.state != "working" else Text()


def _totals(sighting: Sighting) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=DIM, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value, style in _lines(sighting):
        table.add_row(name, Text(value, style))
    return table


def _lines(sighting: Sighting) -> list[tuple[str, str, str]]:
    """Name, value and style of each total."""
    cluster, rates = sighting.cluster, sighting.rates
    dead = cluster.parked.get("dead", 0)
    waiting = {state: count for state, count in cluster.parked.items() if state != "dead"}
    away = cluster.unowned and not cluster.paused
    return [
        ("published", f"{rates.published:,.0f}/s" if rates else "-", "bold"),
        ("delivered", f"{rates.delivered:,.0f}/s" if rates else "-", "bold"),
        ("pending", _pending(cluster), "bold"),
        ("oldest", f"published {age(cluster.oldest_age)} ago" if cluster.oldest_age is not None else "-", ""),
        ("parked", ", ".join(f"{count:,} {state}" for state, count in waiting.items()) or "0", ""),
        ("dead", f"{dead:,}", "bold red" if dead else ""),
        ("blocked", counted(cluster.blocked_keys, "aggregate"), "bold yellow" if cluster.blocked_keys else ""),
        ("unowned", f"{cluster.unowned} of {len(cluster.partitions)}", "bold red" if away else ""),
    ]


def _pending(cluster: Cluster) -> str:
    return f"{'' if cluster.exact else 'about '}{cluster.pending:,}"


def _long_runs(scene: Scene, roomy: bool, room: int) -> list[Table]:
    """The handlers that run for long, as many as there is room for."""
    rows = long_runs.rows(scene.sighting.cluster)
    if room < 2 or not rows:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=True)
    name, length, event, process = long_runs.COLUMNS
    table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=32, style="bold yellow")
    table.add_column(length, justify="right", no_wrap=True)
    table.add_column(event, no_wrap=True, overflow="ellipsis", ratio=1)
    if roomy:
        table.add_column(process, no_wrap=True, overflow="ellipsis", max_width=24)
    for row in rows[: room - 1]:
        table.add_row(*(Text(_short(cell)) for cell in (row if roomy else row[:3])))
    return [table]


def _blocked(scene: Scene, roomy: bool, room: int) -> list[RenderableType]:
    """The aggregates that are blocked the longest, as many as there is room for."""
    if room < 2 or not scene.blocked:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=True)
    table.add_column("blocked the longest", no_wrap=True, overflow="ellipsis", max_width=32)
    for column in ("since", "attempts", "behind it") if roomy else ("since",):
        table.add_column(column, justify="right", no_wrap=True)
    if roomy:
        table.add_column("state", no_wrap=True)
    table.add_column("error", no_wrap=True, overflow="ellipsis", ratio=1)
    for keys in _alike(scene.blocked)[: room - 1]:
        first, others = keys[0], len(keys) - 1
        since = age(max(0.0, (scene.sighting.at - first.blocked_since).total_seconds()))
        error = ": ".join(part for part in (first.error_type, first.error) if part)
        name = _short(f"{first.aggregate_type} {first.aggregate_id}")
        aggregate = Text(f"{in_short(name, LESS)} and {others:,} more" if others else name)
        behind = sum(each.followers for each in keys)
        more = (str(first.attempts), f"{behind:,}", first.state) if roomy else ()
        table.add_row(aggregate, since, *more, Text(_short(error)))
    return [table]


def _alike(keys: Sequence[BlockedKey]) -> list[list[BlockedKey]]:
    """Those that wait for the same reason together: of an open circuit there may be any number."""
    groups: dict[tuple[str, ...], list[BlockedKey]] = {}
    for key in keys:
        why = "" if key.state == "deferred" else key.error_type or key.error or ""
        groups.setdefault((key.state, key.event_type, why), []).append(key)
    return list(groups.values())


def _short(text: str) -> str:
    """One line that moves no cursor, whatever the text holds."""
    return printable(in_short(text, SHORT))
