"""The picture of the demo: the partitions by owner, the processes, totals, and the last news."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partbox.db.inspect.stats import Cluster, Instance
from partbox.stats.happenings import Happening
from partbox.terminal import cluster_view
from partbox.terminal.cluster_view import DIM, GAP, ROOMY, ProcessColumn
from partbox.terminal.grid import SIDE
from partbox.terminal.roster import Roster

BESIDE = 60  # columns from which the numbers have room beside the map
FULL = 58  # columns that the whole table of processes needs
WITH_RATES = 34  # columns that the totals and their rates need
TOTALS = 7  # lines


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that is shown of one moment; rates per second, lags (median, 99th percentile) in seconds.

    `elapsed` is None until the shop opens, `seconds` 0 means no end; `moved` are partitions that have just changed
    owner, `rates` those of processes by pid; `page` is the address of the live page, if there is one.
    """

    elapsed: float | None
    seconds: float
    cluster: Cluster
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
    roomy, beside = width >= ROOMY, width >= BESIDE
    room, taken = (height, SIDE) if beside else (height - SIDE, 2 * SIDE)
    most = max(2, max(room - 6, SIDE) - TOTALS - 2)
    body = cluster_view.body(
        frame.cluster,
        frame.roster,
        frame.moved,
        lambda columns: Group(_processes(frame, columns >= FULL, most), Text(), _totals(frame, columns >= WITH_RATES)),
        width,
        BESIDE,
        GAP if roomy else 1,
    )
    return Group(_title(frame, roomy), _page(frame), body, Text(), *_last(frame, max(3, height - taken - 3), roomy))


def line(frame: Frame) -> str:
    """The same in one line, for a pipe."""
    owners = " ".join(
        f"{frame.roster.face(each.instance_id).letter} {each.partitions}" for each in frame.cluster.instances
    )
    lags = f"lag p50 {_ms(frame.lags[0])}, p99 {_ms(frame.lags[1])}" if frame.lags else "lag -"
    return (
        f"{frame.elapsed or 0:4.0f} s  published {frame.published:,} ({frame.published_rate:,.0f}/s)  "
        f"delivered {frame.delivered:,} ({frame.delivered_rate:,.0f}/s)  pending {frame.pending:,}  {lags}  "
        f"out of order {frame.out_of_order:,}  partitions {owners or '-'}"
    )


def told(happening: Happening) -> str:
    """One thing that happened, at its local time of day."""
    return f"{_clock(happening)}{happening.text}"


def _clock(happening: Happening) -> str:
    return f"{happening.at.astimezone():%H:%M:%S}  "


def _title(frame: Frame, roomy: bool) -> Table:
    end = f" of {frame.seconds:.0f} s" if frame.seconds else " s"
    clock = "starting" if frame.elapsed is None else f"{frame.elapsed:.0f}{end}"
    return cluster_view.heading(
        Text.assemble(("partbox demo", "bold"), ("  256 partitions by owner" if roomy else "", DIM)),
        Text.assemble((clock, "bold"), ("  Ctrl-C ends it", DIM)),
    )


def _page(frame: Frame) -> Text:
    """The address of the live page, whole even if that takes two lines: it is there to be copied."""
    return Text.assemble(("page ", DIM), frame.page, overflow="fold") if frame.page else Text()


def _processes(frame: Frame, full: bool, most: int) -> Table:
    """With nodes and heartbeats where the table is shown in full."""
    names = ("partitions", "heartbeat", "events/s") if full else ("owns", "per s")
    columns = [ProcessColumn("pid"), *map(ProcessColumn, names)]
    if full:
        columns.insert(1, ProcessColumn("node", 14))
    rows = [(frame.roster.face(each.instance_id), _cells(frame, each, full)) for each in frame.cluster.instances]
    return cluster_view.processes(columns, rows, most)


def _cells(frame: Frame, each: Instance, full: bool) -> list[RenderableType]:
    pid, owns, rate = str(each.pid), str(each.partitions), f"{frame.rates.get(each.pid, 0):,.0f}"
    return [pid, Text(each.node), owns, f"{each.heartbeat_age:.1f} s ago", rate] if full else [pid, owns, rate]


def _totals(frame: Frame, rates: bool) -> Table:
    table = cluster_view.totals()
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


def _last(frame: Frame, count: int, clock: bool) -> list[Text]:
    """The last news, the newest at the bottom."""
    lines = []
    for happening in list(frame.happenings)[-count:]:
        said = Text.assemble((_clock(happening) if clock else "", DIM), happening.text)
        said.no_wrap, said.overflow = True, "ellipsis"
        lines.append(said)
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
