"""The parts that all live views of a cluster share: the map of partitions, the table of processes, the totals."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.table import Table
from rich.text import Text

from partbox.db.inspect.stats import Cluster
from partbox.terminal.roster import ProcessBadge, Roster

SIDE: Final = 16  # rows and columns of the map of 256 partitions
ROOMY: Final = 80  # columns from which optional columns are shown
WIDE: Final = 110  # columns from which a cell of the map is three columns wide
GAP: Final = 3
DIM: Final = "bright_black"


class ProcessColumn(NamedTuple):
    """A column of the table of processes: text of at most `width` characters, or a number if `width` is None."""

    name: str
    width: int | None = None


def make_full_screen(console: Console) -> Live:
    """Return a rich live view that fills the terminal, survives a resize, and leaves no trace at its end."""
    # The view uses the terminal's alternate screen.
    return Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


def build_heading(left: Text, right: Text) -> Table:
    # An ellipsis replaces the end of `left` if it does not fit.
    made = Table.grid(expand=True, padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True, overflow="ellipsis")
    made.add_column(justify="right", no_wrap=True)
    made.add_row(left, right)
    return made


def build_body(
    cluster: Cluster,
    roster: Roster,
    moved: Collection[int],
    numbers: Callable[[int], RenderableType],
    width: int,
    beside: int,
    gap: int = GAP,
) -> RenderableType:
    """Lay out the map of a subscription's partitions, with a table beside it or below it."""
    # The table is `numbers(columns)`. It is below the map if `width` < `beside`.
    living = {each.instance_id for each in cluster.instances}
    owners = [each.owner if each.owner in living else None for each in cluster.partitions]
    cell = 3 if width >= WIDE else 2
    map_of = draw_partition_map(owners, roster, moved, cell)
    if width < beside:
        return Group(map_of, Text(), numbers(width))
    made = Table.grid(padding=(0, gap, 0, 0))
    made.add_column(width=SIDE * cell)
    made.add_column()
    made.add_row(map_of, numbers(width - SIDE * cell - gap))
    return made


def build_process_table(
    columns: Sequence[ProcessColumn], rows: Sequence[tuple[ProcessBadge, Sequence[RenderableType]]], room: int
) -> Table:
    # If there are more than `room` lines, the last one counts the rest.
    made = build_listing()
    made.add_column("", no_wrap=True)
    for name, width in columns:
        made.add_column(name, justify="right" if width is None else "left", no_wrap=True, max_width=width)
    shown = rows if len(rows) <= room else rows[: room - 1]
    for badge, cells in shown:
        made.add_row(Text(f" {badge.letter} ", f"bold black on {badge.colour}"), *cells)
    if left := len(rows) - len(shown):
        made.add_row("…", Text(f"{left} more", DIM))
    return made


def build_listing(*, expand: bool = False) -> Table:
    # The caller adds columns and rows.
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=expand)


def build_totals() -> Table:
    # The caller adds columns for the values.
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style=DIM, no_wrap=True)
    return made


def build_summary_table(rows: Iterable[tuple[str, str, str | Text]]) -> Table:
    # Each row has a name, a number and a remark.
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column()
    made.add_column(justify="right", style="bold")
    made.add_column()
    for name, number, remark in rows:
        made.add_row(name, number, Text(remark) if isinstance(remark, str) else remark)
    return made


def draw_partition_map(owners: Sequence[Hashable | None], roster: Roster, moved: Collection[int], cell: int) -> Text:
    """Draw a map of all partitions, each shown by the letter of the process that owns it."""
    # A cell has `cell` columns. The colours of a partition that has just moved to another owner are swapped.
    drawn = Text(no_wrap=True)
    for partition, owner in enumerate(owners):
        badge = roster.find_badge(owner)
        plain = owner is None or partition in moved
        style = Style.parse(f"bold {badge.colour}" if plain else f"black on {badge.colour}")
        drawn.append(badge.letter.center(cell), style)
        if partition % SIDE == SIDE - 1 and partition < len(owners) - 1:
            drawn.append("\n")
    return drawn
