"""Many subscriptions of one log, and one that is far behind beside one that is not."""

import time
from collections.abc import Set
from statistics import mean
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, is_here
from partbox_lab.bench.crew import Crew, crew, most
from partbox_lab.bench.family import Family, Results
from partbox_lab.bench.ground import Ground
from partbox_lab.bench.handlers import Notebook, NoteTaker, dawdle
from partbox_lab.bench.lines.latency import latencies
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import quantile
from partbox_lab.bench.sender import sending

MANY: Final = Budget(
    "subscriptions-cpu",
    "CPU of the server for an event in one of 50 subscriptions vs in the only one, at 100 events/s",
    Direction.AT_MOST,
    1.2,
)
BEHIND: Final = Budget(
    "behind-latency",
    "median latency beside a subscription that is far behind vs without it, at 100 events/s",
    Direction.AT_MOST,
    1.5,
)
RATE: Final = 100.0
OTHER: Final = "behind"
TO_ARRIVE: Final = 60.0


def _busy(ground: Ground, members: Crew, name: str) -> float:
    """The server's CPU of the crew for a second of 100 events."""
    with sending(ground.dsn, ground.schema, RATE, None, ground.folder / name) as sender:
        ground.until(lambda: bool(sender.sent()), "the first event", TO_ARRIVE)
        ground.pause(ground.sizes.calm)
        before, began = members.server(), time.monotonic()
        ground.pause(ground.sizes.growth.standing)
        return (members.server() - before) / (time.monotonic() - began)


def _many(ground: Ground) -> Results:
    if not is_here(statements.backend(ground.conn, ground.schema)):
        yield Unmeasured(MANY.name, ELSEWHERE)
        return
    ground.fresh()
    number = most(ground, ground.sizes.growth.subscriptions)
    names = [f"number-{each}" for each in range(1, number)]
    with crew(ground) as members:
        members.join(["default"])
        alone = _busy(ground, members, "sent-alone")
        manager = ground.outbox().subscriptions
        for name in names:
            manager.create(name, "now")
        ground.say(f"  {number} subscriptions are read ...")
        members.join(names)
        together = _busy(ground, members, "sent-together")
    said = f"{number} subscriptions {100 * together:.1f} % of a core, one {100 * alone:.1f} %"
    yield Measured(MANY.name, together / number / alone, said, {"together": together, "alone": alone})


def _latency(ground: Ground, notebook: Notebook, name: str) -> float:
    """The median latency of the live subscription, in milliseconds."""
    arrived: dict[int, int] = {}
    [*notebook.new()]
    seconds = ground.sizes.growth.standing
    with sending(ground.dsn, ground.schema, RATE, seconds, ground.folder / name) as sender:
        ground.until(lambda: sender.ended, "publishing", seconds + TO_ARRIVE)
        sent = sender.sent()

    def all_arrived() -> bool:
        for note in notebook.new():
            arrived.setdefault(note.number, note.at)
        return sent.keys() <= arrived.keys()

    ground.until(all_arrived, "delivering", TO_ARRIVE)
    return quantile(latencies(sent, arrived), 0.5)


def _behind(ground: Ground) -> Results:
    """The other one has a backlog that its slow handler takes hours for; it stands still before and after."""
    backlog = ground.sizes.growth.behind
    ground.fresh()
    ground.load(backlog)
    ground.rewind(statements.position(ground.conn, ground.schema))
    ground.outbox().subscriptions.create(OTHER, "beginning")
    notebook = Notebook(ground.folder / "behind")
    with BenchNode(ground, ground.outbox(NoteTaker(notebook.path)), 1):
        without = [_latency(ground, notebook, "sent-before")]
        with crew(ground, dawdle) as slow:
            slow.join([OTHER])
            beside = _latency(ground, notebook, "sent-beside")
        without.append(_latency(ground, notebook, "sent-after"))
    plain = mean(without)
    note = f"{beside:.2f} ms, without {plain:.2f} ms; {backlog:,} events behind, read by a handler that takes its time"
    yield Measured(BEHIND.name, beside / plain, note, {"beside": beside, "without": without})


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    if MANY.name in wanted:
        yield from _many(ground)
    if BEHIND.name in wanted:
        yield from _behind(ground)


FAMILY: Final = Family((MANY, BEHIND), _measure)
