"""The table for people, the header, and JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from partbox_lab.bench.rounds import quantile
from partbox_lab.peers.figures import middle
from partbox_lab.peers.measure import DrainResult, Latency, PublishResult
from partbox_lab.peers.peer import Order

RATES = (1, 100, 1_000)
HEAD = (
    "peer", "order", "publish/s", "bulk/s", "drain/s", "2 proc./s", *(f"p50/p99 at {rate:,}/s" for rate in RATES),
    "WAL pub.", "WAL drain", "dead", "CPU", "disorder",
)  # fmt: skip
WIDE = 240  # columns for the whole table
NOTHING = "-"
NOTE = """\
publish     events a second by one connection, one event a transaction; bulk: 1,000 a transaction
drain       events a second of a backlog, by one process and by two
p50/p99     ms from commit to handler, one process; + some were missing after 5 s; ~ the publisher fell behind the rate
WAL         bytes an event, of publishing (bulk) and of draining
dead        row versions an event that updates and deletes leave while draining
CPU         microseconds an event, of the workers + of the server, draining with one process
disorder    events that two processes handled after a later one of the same key"""


@dataclass(slots=True)
class Result:
    """The measurements of a peer in one order. Each list has a value per round."""

    peer: str
    order: Order
    settings: str
    versions: str = ""  # empty if the peer could not be installed
    published: list[PublishResult] = field(default_factory=list)
    drained: list[DrainResult] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    disorder: list[float] = field(default_factory=list)  # percentages
    error: str = ""  # the first failure, in one line


def table(results: Sequence[Result]) -> Table:
    """Return a table with the medians of the rounds, and with latencies over all rounds."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in HEAD:
        made.add_column(name, justify="left" if name in ("peer", "order") else "right", no_wrap=True)
    for each in results:
        made.add_row(*_row(each))
    return made


def failures(results: Sequence[Result]) -> list[str]:
    """Return a heading and one line for each failed peer, or nothing."""
    failed = [f"{each.peer}, order {each.order}: {each.error}" for each in results if each.error]
    return ["", "failed:", *failed] if failed else []


def header_lines(header: dict[str, Any]) -> str:
    """Return the header as text."""
    return "\n".join(f"{name}: {_said(value)}" for name, value in header.items())


def as_json(header: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """Return all measurements of each round for JSON. Latencies are reduced to percentiles."""
    found = [
        asdict(each) | {"latencies": [_waits(run) for run in each.latencies], "medians": medians(each)}
        for each in results
    ]
    return {"header": header, "results": found}


def medians(result: Result) -> dict[str, float | None]:
    """Return the median of the rounds by name, or None for a value that was not measured."""
    one = [each for each in result.drained if each.processes == 1]
    two = [each for each in result.drained if each.processes == 2]
    return {
        "publish": middle([each.single for each in result.published]),
        "bulk": middle([each.bulk for each in result.published]),
        "drain": middle([each.rate for each in one]),
        "drain_2": middle([each.rate for each in two]),
        "wal_published": middle([each.wal_bulk for each in result.published]),
        "wal_drained": middle([each.wal for each in one]),
        "dead": middle([each.dead for each in one]),
        "cpu_workers": middle([each.cpu_workers for each in one]),
        "cpu_server": middle([each.cpu_server for each in one]),
    }


def _waits(run: Latency) -> dict[str, float]:
    found = {f"p{percent}": round(quantile(run.values, percent / 100), 3) for percent in (50, 90, 99)}
    found["p100"] = round(max(run.values), 3)
    return {"rate": run.rate, "reached": run.reached, "missing": run.missing, "events": len(run.values)} | found


def _row(result: Result) -> tuple[str, ...]:
    found = medians(result)
    rates = [_whole(found[name]) for name in ("publish", "bulk", "drain", "drain_2")]
    waits = [_wait([each for each in result.latencies if each.rate == rate]) for rate in RATES]
    costs = [_whole(found["wal_published"]), _small(found["wal_drained"]), _small(found["dead"])]
    cpu = f"{_small(found['cpu_workers'])} + {_small(found['cpu_server'])}"
    disorder = f"{max(result.disorder):.1f} %" if result.disorder else NOTHING
    return (result.peer, result.order, *rates, *waits, *costs, cpu, disorder)


def _wait(runs: Sequence[Latency]) -> str:
    values = [value for each in runs for value in each.values]
    if not values:
        return NOTHING
    mark = " +" if any(each.missing for each in runs) else " ~" if any(each.is_slow for each in runs) else ""
    return f"{_short(quantile(values, 0.5))} / {_short(quantile(values, 0.99))}{mark}"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _small(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"\n  {name}: {each}" for name, each in value.items())
    return f"{value:.1f}" if isinstance(value, float) else str(value)
