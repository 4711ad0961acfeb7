"""The terminal view of the demo: partitions by owner, processes, totals, and the last news."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from partbox.db.inspect.stats import Cluster
from partbox.demo.audit import Throughput
from partbox.operations.stats import NewsItem
from partbox.terminal import cluster_view
from partbox.terminal.cluster_view import DIM, GAP, ROOMY, SIDE, ProcessColumn, make_full_screen
from partbox.terminal.roster import Roster

# Columns from which the numbers fit beside the map.
BESIDE = 60
# Columns that the full table of processes needs.
FULL = 58
# Columns that the totals with their rates need.
WITH_RATES = 34
TOTALS = 7  # lines


@dataclass(frozen=True, slots=True)
class Frame:
    """The state of the demo at one moment, to be shown on the screen.

    - `elapsed`: None until the shop opens
    - `seconds`: 0 for a run without an end
    - `moved_partitions`: partitions that have just changed owner
    - `page`: the address of the live page"""

    elapsed: float | None
    seconds: float
    cluster: Cluster
    roster: Roster
    moved_partitions: frozenset[int]
    events: Throughput
    duplicates: int
    out_of_order: int
    happenings: Sequence[NewsItem]
    page: str | None = None


def render_demo(frame: Frame, width: int, height: int) -> RenderableType:
    roomy, beside = width >= ROOMY, width >= BESIDE
    room, taken = (height, SIDE) if beside else (height - SIDE, 2 * SIDE)
    most = max(2, max(room - 6, SIDE) - TOTALS - 2)
    body = cluster_view.build_body(
        frame.cluster,
        frame.roster,
        frame.moved_partitions,
        lambda columns: Group(
            _render_processes(frame, columns >= FULL, most), Text(), _render_totals(frame, columns >= WITH_RATES)
        ),
        width,
        BESIDE,
        GAP if roomy else 1,
    )
    # The address is shown in full, even on two lines, because it is there to be copied. It comes last, where it is seen
    # best, and at the top only if the last line would be off the screen.
    address = frame.page or ""
    # The label is left out if it would break the address.
    label = "page " if address and len(address) + len("page ") <= width else ""
    page = Text.assemble((label, DIM), address, overflow="fold")
    left, lines = height - taken - 3, -(-len(page) // width)
    on_top = left < lines
    count = max(3, left) if on_top or not lines else left - lines
    news = [
        Text.assemble((format_local_time(each) if roomy else "", DIM), each.text, no_wrap=True, overflow="ellipsis")
        # A slice from -0 would have all news.
        for each in list(frame.happenings)[-count:][:count]
    ]
    top, bottom = (page, []) if on_top else (Text(), [page] if lines else [])
    return Group(_render_title(frame, roomy), top, body, Text(), *news, *bottom)


def format_line(frame: Frame) -> str:
    owners = [
        f"{frame.roster.find_badge(each.instance_id).letter} {each.partitions}" for each in frame.cluster.instances
    ]
    events = frame.events
    lags = f"lag p50 {_format_ms(events.lags[0])}, p99 {_format_ms(events.lags[1])}" if events.lags else "lag -"
    return (
        f"{frame.elapsed or 0:4.0f} s  published {events.published:,} ({events.published_rate:,.0f}/s)  "
        f"delivered {events.delivered:,} ({events.delivered_rate:,.0f}/s)  pending {events.pending:,}  {lags}  "
        f"out of order {frame.out_of_order:,}  partitions {' '.join(owners) or '-'}"
        + (f"  page {frame.page}" if frame.page else "")
    )


def format_local_time(happening: NewsItem) -> str:
    return f"{happening.at.astimezone():%H:%M:%S}  "


def _render_title(frame: Frame, roomy: bool) -> Table:
    end = f" of {frame.seconds:.0f} s" if frame.seconds else " s"
    elapsed = "starting" if frame.elapsed is None else f"{frame.elapsed:.0f}{end}"
    return cluster_view.build_heading(
        Text.assemble(("partbox demo", "bold"), ("  256 partitions by owner" if roomy else "", DIM)),
        Text.assemble((elapsed, "bold"), ("  Ctrl-C ends it", DIM)),
    )


def _render_processes(frame: Frame, full: bool, most: int) -> Table:
    names = ("pid", "node", "partitions", "heartbeat", "events/s") if full else ("pid", "owns", "per s")
    columns = [ProcessColumn(name, 14 if name == "node" else None) for name in names]
    rows = []
    for each in frame.cluster.instances:
        pid, owns, rate = str(each.pid), str(each.partitions), f"{frame.events.rates.get(each.pid, 0):,.0f}"
        cells: list[RenderableType] = [pid, owns, rate]
        if full:
            cells = [pid, Text(each.node), owns, f"{each.heartbeat_age:.1f} s ago", rate]
        rows.append((frame.roster.find_badge(each.instance_id), cells))
    return cluster_view.build_process_table(columns, rows, most)


def _render_totals(frame: Frame, rates: bool) -> Table:
    events = frame.events
    half, most = map(_format_ms, events.lags) if events.lags else ("-", "-")
    table = cluster_view.build_totals()
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("published", f"{events.published:,}", f"{events.published_rate:,.0f}/s" if rates else "")
    table.add_row("delivered", f"{events.delivered:,}", f"{events.delivered_rate:,.0f}/s" if rates else "")
    table.add_row("pending", f"{events.pending:,}")
    table.add_row("lag, half", half)
    table.add_row("lag, 99 %", most)
    table.add_row("duplicates", f"{frame.duplicates:,}")
    table.add_row("out of order", Text(f"{frame.out_of_order:,}", "bold red" if frame.out_of_order else "bold green"))
    return table


def _format_ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


EVERY = 2.0  # seconds between two lines
FOR_PIPES = 300  # columns


class Screen:
    """An output for the state and the news of the demo: a full-screen terminal, or plain lines.

    - `show_frame` is called inside `live()`, the other methods at any time."""

    def __init__(self, out: TextIO) -> None:
        console = Console(file=out, highlight=False)
        draws = console.is_terminal and not console.is_dumb_terminal
        self._console = console if draws else Console(file=out, highlight=False, width=FOR_PIPES)
        self._live = make_full_screen(console) if draws else None
        self._due = 0.0

    def live(self) -> AbstractContextManager[object]:
        return self._live or nullcontext()

    def show_frame(self, frame: Frame) -> None:
        """Draw the demo's state on a terminal, or print its numbers in one line on another output."""
        # The line is printed if it is due.
        if self._live is not None:
            self._live.update(render_demo(frame, *self._console.size), refresh=True)
        elif frame.elapsed is not None and frame.elapsed >= self._due:
            self._due = frame.elapsed + EVERY
            self.print_text(format_line(frame))

    def print_happening(self, happening: NewsItem) -> None:
        # On a terminal nothing is printed, because the next frame shows the item.
        if self._live is None:
            self.print_text(f"{format_local_time(happening)}{happening.text}")

    def print_text(self, text: str) -> None:
        self._console.print(text, markup=False)
        self._console.file.flush()
