"""The parts that every live view of a cluster shares: the map of the partitions, the processes, the totals."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.table import Table
from rich.text import Text

from partbox.db.inspect.stats import Cluster
from partbox.terminal.roster import ProcessBadge, Roster

SIDE: Final = 16  # the map has 16 x 16 partitions
ROOMY: Final = 80  # columns from which there is room for more than what is needed
WIDE: Final = 110  # columns from which the map's cells are three wide
GAP: Final = 3
DIM: Final = "bright_black"


class ProcessColumn(NamedTuple):
    """A column of the processes: text of at most `width` characters, or a number (None)."""

    name: str
    width: int | None = None


def full_screen(console: Console) -> Live:
    """A view on the terminal's other screen, which comes and goes without a trace and survives being resized."""
    return Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


def heading(left: Text, right: Text) -> Table:
    """The first line; of `left` an ellipsis stands for what has no room."""
    made = Table.grid(expand=True, padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True, overflow="ellipsis")
    made.add_column(justify="right", no_wrap=True)
    made.add_row(left, right)
    return made


def body(
    cluster: Cluster,
    roster: Roster,
    moved: Collection[int],
    numbers: Callable[[int], RenderableType],
    width: int,
    beside: int,
    gap: int = GAP,
) -> RenderableType:
    """The map of the partitions; `numbers(columns)` stand beside it if `width` is at least `beside`, else below it."""
    living = {each.instance_id for each in cluster.instances}
    owners = [each.owner if each.owner in living else None for each in cluster.partitions]
    cell = 3 if width >= WIDE else 2
    map_of = partition_map(owners, roster, moved, cell)
    if width < beside:
        return Group(map_of, Text(), numbers(width))
    made = Table.grid(padding=(0, gap, 0, 0))
    made.add_column(width=SIDE * cell)
    made.add_column()
    made.add_row(map_of, numbers(width - SIDE * cell - gap))
    return made


def processes(
    columns: Sequence[ProcessColumn], rows: Sequence[tuple[ProcessBadge, Sequence[RenderableType]]], room: int
) -> Table:
    """A line for each process, with its badge and its cells; the last line counts those for which there is no room."""
    made = listing()
    made.add_column("", no_wrap=True)
    for name, width in columns:
        made.add_column(name, justify="right" if width is None else "left", no_wrap=True, max_width=width)
    shown = rows if len(rows) <= room else rows[: room - 1]
    for badge, cells in shown:
        made.add_row(Text(f" {badge.letter} ", f"bold black on {badge.colour}"), *cells)
    if left := len(rows) - len(shown):
        made.add_row("…", Text(f"{left} more", DIM))
    return made


def listing(*, expand: bool = False) -> Table:
    """A table without lines, whose column names are dim."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=expand)


def totals() -> Table:
    """A grid whose first column has dim names; the caller adds columns for the values."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style=DIM, no_wrap=True)
    return made


def summary_table(rows: Iterable[tuple[str, str, str | Text]]) -> Table:
    """The table that ends a run: a name, a number and a remark in each row."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column()
    made.add_column(justify="right", style="bold")
    made.add_column()
    for name, number, remark in rows:
        made.add_row(name, number, Text(remark) if isinstance(remark, str) else remark)
    return made


def partition_map(owners: Sequence[Hashable | None], roster: Roster, moved: Collection[int], cell: int) -> Text:
    """A letter for each partition, `cell` columns wide; one that has just moved has its colours swapped."""
    drawn = Text(no_wrap=True)
    for partition, owner in enumerate(owners):
        badge = roster.badge(owner)
        plain = owner is None or partition in moved
        style = Style.parse(f"bold {badge.colour}" if plain else f"black on {badge.colour}")
        drawn.append(badge.letter.center(cell), style)
        if partition % SIDE == SIDE - 1 and partition < len(owners) - 1:
            drawn.append("\n")
    return drawn
