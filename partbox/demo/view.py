"""Draws what goes on: the partitions by owner, the processes, totals, and what happened last."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partbox.demo.chronicle import Happening
from partbox.demo.cluster import Process, Sight
from partbox.terminal.grid import SIDE, badge, grid
from partbox.terminal.roster import Roster

BESIDE = 60  # columns from which the numbers have room beside the grid
ROOMY = 80  # columns from which there is room for more than what is needed
FULL = 58  # columns that the whole table of processes needs
WITH_RATES = 34  # columns that the totals and their rates need
GAP = 3
DIM = "bright_black"


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that is shown of one moment; rates per second, lags (median, 99th percentile) in seconds.

    `elapsed` is None until the shop opens, `seconds` 0 means no end; `moved` are partitions that have just changed
    owner, `rates` those of processes by pid; `page` is the address of the live page, if there is one.
    """

    elapsed: float | None
    seconds: float
    sight: Sight
    roster: Roster
    moved: frozenset[int]
    rates: dict[int, float]
    published: int
    published_rate: float
    delivered: int
    delivered_rate: float
    duplicates: int
    out_of_order: int
    lags: tuple[float, float] | None
    happenings: Sequence[Happening]
    page: str | None = None

    @property
    def pending(self) -> int:
        """Published and not delivered yet; a delivery may be noted before its publisher has counted it."""
        return max(0, self.published - self.delivered)


def picture(frame: Frame, width: int, height: int) -> RenderableType:
    """The whole view, for a terminal of this size."""
    roomy = width >= ROOMY
    if width >= BESIDE:
        body, taken = _beside(frame, width, height), SIDE
    else:
        body, taken = Group(_grid(frame, 2), Text(), _numbers(frame, width, height - SIDE)), 2 * SIDE
    last = _last(frame, max(3, height - taken - 3), clock=roomy)
    return Group(_title(frame, roomy), _page(frame), body, Text(), *last)


def line(frame: Frame) -> str:
    """The same in one line, for a pipe."""
    owners = " ".join(f"{frame.roster.face(each.pid).letter} {each.owned}" for each in frame.sight.processes)
    lags = f"lag p50 {_ms(frame.lags[0])}, p99 {_ms(frame.lags[1])}" if frame.lags else "lag -"
    return (
        f"{frame.elapsed or 0:4.0f} s  published {frame.published:,} ({frame.published_rate:,.0f}/s)  "
        f"delivered {frame.delivered:,} ({frame.delivered_rate:,.0f}/s)  pending {frame.pending:,}  {lags}  "
        f"out of order {frame.out_of_order:,}  partitions {owners or '-'}"
    )


def told(happening: Happening) -> str:
    """One thing that happened."""
    return f"{happening.at}  {happening.text}"


def _title(frame: Frame, roomy: bool) -> RenderableType:
    title = Table.grid(expand=True, padding=(0, 1, 0, 0))
    title.add_column(no_wrap=True, overflow="ellipsis")
    title.add_column(justify="right", no_wrap=True)
    end = f" of {frame.seconds:.0f} s" if frame.seconds else " s"
    clock = "starting" if frame.elapsed is None else f"{frame.elapsed:.0f}{end}"
    title.add_row(
        Text.assemble(("partbox demo", "bold"), ("  256 partitions by owner" if roomy else "", DIM)),
        Text.assemble((clock, "bold"), ("  Ctrl-C ends it", DIM)),
    )
    return title


def _page(frame: Frame) -> Text:
    """Where the live page is, whole even where that takes two lines: it is there to be copied."""
    return Text.assemble(("page ", DIM), frame.page, overflow="fold") if frame.page else Text()


def _grid(frame: Frame, cell: int) -> Text:
    return grid(frame.sight.owners, frame.roster, frame.moved, cell)


def _beside(frame: Frame, width: int, height: int) -> RenderableType:
    """The grid, its cells as wide as there is room for, and the numbers to the right of it."""
    gap = GAP if width >= ROOMY else 1
    cell = 3 if width >= SIDE * 3 + gap + FULL else 2
    body = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    body.add_column(width=SIDE * cell)
    body.add_column()
    body.add_row(_grid(frame, cell), _numbers(frame, width - SIDE * cell - gap, height))
    return body


def _numbers(frame: Frame, width: int, height: int) -> RenderableType:
    totals = _totals(frame, rates=width >= WITH_RATES)
    room = max(2, max(height - 6, SIDE) - totals.row_count - 2)
    return Group(_processes(frame, width >= FULL, room), Text(), totals)


def _processes(frame: Frame, full: bool, room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM)
    table.add_column("", no_wrap=True)
    table.add_column("pid", justify="right", no_wrap=True)
    if full:
        table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=14)
    table.add_column("partitions" if full else "owns", justify="right", no_wrap=True)
    if full:
        table.add_column("heartbeat", justify="right", no_wrap=True)
    table.add_column("events/s" if full else "per s", justify="right", no_wrap=True)
    shown = frame.sight.processes if len(frame.sight.processes) <= room else frame.sight.processes[: room - 1]
    for process in shown:
        table.add_row(*_process(frame, process, full))
    if left := len(frame.sight.processes) - len(shown):
        table.add_row("…", Text(f"{left} more", DIM))
    return table


def _process(frame: Frame, process: Process, full: bool) -> list[RenderableType]:
    face = frame.roster.face(process.pid)
    cells: list[RenderableType] = [badge(face), str(process.pid)]
    if full:
        cells.append(Text(process.node))
    cells.append(str(process.owned))
    if full:
        cells.append(f"{process.heartbeat_age:.1f} s ago")
    return [*cells, f"{frame.rates.get(process.pid, 0):,.0f}"]


def _totals(frame: Frame, *, rates: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=DIM, no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("published", f"{frame.published:,}", f"{frame.published_rate:,.0f}/s" if rates else "")
    table.add_row("delivered", f"{frame.delivered:,}", f"{frame.delivered_rate:,.0f}/s" if rates else "")
    table.add_row("pending", f"{frame.pending:,}")
    table.add_row("lag, half", _ms(frame.lags[0]) if frame.lags else "-")
    table.add_row("lag, 99 %", _ms(frame.lags[1]) if frame.lags else "-")
    table.add_row("duplicates", f"{frame.duplicates:,}")
    table.add_row("out of order", Text(f"{frame.out_of_order:,}", "bold red" if frame.out_of_order else "bold green"))
    return table


def _last(frame: Frame, count: int, *, clock: bool) -> list[Text]:
    """What happened last, the newest at the bottom."""
    lines = []
    for happening in list(frame.happenings)[-count:]:
        said = Text.assemble((f"{happening.at}  " if clock else "", DIM), happening.text)
        said.no_wrap, said.overflow = True, "ellipsis"
        lines.append(said)
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
