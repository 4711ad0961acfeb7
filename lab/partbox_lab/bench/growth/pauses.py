"""Pauses of publishers and workers under load, while segments are made, emptied and dropped all the time.

What is judged is the longest one, less what a control had at the same time: one that writes elsewhere, and one that
only sleeps. The distributions of all of it are in the details.
"""

import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import cycle
from math import ceil
from typing import Any, Final

import psycopg
from psycopg import Connection

from partbox.errors import PartboxError
from partbox_lab.bench import statements
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.bystanders import BystanderNotes, Bystanders, BystanderTask
from partbox_lab.bench.changing import ChangingSegments
from partbox_lab.bench.family import Family, Results
from partbox_lab.bench.ground import Ground
from partbox_lab.bench.handlers import Notebook, Noted, NoteTaker
from partbox_lab.bench.metronome import one_for_each_partition
from partbox_lab.bench.node import ALL, BenchNode
from partbox_lab.bench.pauses import LIMIT, Distribution, Span, beyond, distribution, gaps
from partbox_lab.bench.sender import KIND

CHANGED: Final = "while segments are made, emptied and dropped"
OPEN: Final = f"{CHANGED}, beside open transactions"
PUBLISH, DELIVERY, PUBLISH_OPEN, DELIVERY_OPEN = (
    Budget(f"pause-{what}", f"longest {said}", Direction.AT_MOST, LIMIT, "ms")
    for what, said in (
        ("publish", f"publish {CHANGED}"),
        ("delivery", f"delivery {CHANGED}"),
        ("publish-open", f"publish {OPEN}"),
        ("delivery-open", f"delivery {OPEN}"),
    )
)
PROCESSES: Final = 2
STEP: Final = 0.3  # seconds between two changes: a segment is made, one emptied, and one dropped in 0.9 s
CYCLE: Final = 3 * STEP
SHORTEST, SHARE = CYCLE, 0.25  # seconds of a phase, and the part of what lines of growth stand still for
FEW: Final = 50  # ids of a segment that is filled
SECOND: Final = 1_000_000_000  # nanoseconds
TO_START: Final = 30.0
TO_ARRIVE: Final = 60.0


@dataclass(slots=True)
class PausePhase:
    """A stretch of the run: the transaction open beside it, and what came of it. `changes` None: nothing was done."""

    name: str
    beside: Callable[[Ground], AbstractContextManager[None]] = lambda _: nullcontext()
    began: int = 0
    ended: int = 0
    changes: ChangingSegments | None = None
    found: dict[str, Distribution] = field(default_factory=dict)
    pauses: dict[str, float] = field(default_factory=dict)

    def covers(self, span: Span) -> bool:
        return self.began <= span.began < self.ended

    def told(self, kind: str) -> str:
        """The distribution in words, beside that of the control."""
        done = f" ({self.changes})" if self.changes is not None else ""
        return f"{self.name}{done}: {self.found[kind]}, elsewhere {self.found['elsewhere']}"

    def plain(self) -> dict[str, float]:
        """All numbers, by the name of the phase."""
        return {
            f"{self.name}: {kind} {name}": value
            for kind, found in self.found.items()
            for name, value in found._asdict().items()
        }


@contextmanager
def _holding(ground: Ground, use: Callable[[Connection[Any]], object]) -> Iterator[None]:
    """A transaction that has done something and stays open."""
    with psycopg.connect(ground.dsn) as conn:
        use(conn)
        yield
        conn.rollback()


def _published(ground: Ground) -> AbstractContextManager[None]:
    return _holding(ground, lambda conn: ground.outbox().publish(conn, KIND, {"number": -1}))


def _read(ground: Ground) -> AbstractContextManager[None]:
    return _holding(ground, lambda conn: statements.read_log(conn, ground.schema))


def _early(ground: Ground) -> AbstractContextManager[None]:
    return _holding(ground, lambda conn: statements.begin_writing(conn, ground.schema))


def _length(ground: Ground) -> float:
    """Seconds of a phase: something of every kind must happen in it."""
    return max(SHORTEST, SHARE * ground.sizes.growth.standing)


class _Watch:
    """Runs the phases over one load, and finds the pauses of each."""

    def __init__(self, ground: Ground, bystanders: Bystanders, notebook: Notebook) -> None:
        self._ground = ground
        self._bystanders = bystanders
        self._notebook = notebook
        self._notes: list[Noted] = []

    def still(self) -> PausePhase:
        """Change nothing."""
        phase = PausePhase("still", began=time.monotonic_ns())
        self._ground.pause(_length(self._ground))
        phase.ended = time.monotonic_ns()
        return phase

    def changing(self, phase: PausePhase) -> PausePhase:
        """Make, empty and drop segments, in turn; before half of the time is over, publishers come to the next one."""
        ground = self._ground
        self._fill(ChangingSegments(ground.conn, ground.schema))
        with phase.beside(ground):
            segments = ChangingSegments(ground.conn, ground.schema)
            phase.began = time.monotonic_ns()
            changes = cycle((segments.add, segments.empty, segments.drop))
            while time.monotonic_ns() - phase.began < _length(ground) * SECOND:
                next(changes)()
                ground.pause(STEP)
            phase.ended = time.monotonic_ns()
        phase.changes = segments
        return phase

    def _fill(self, segments: ChangingSegments) -> None:
        """Have segments to empty, one for each cycle of the phase, and be where few ids of the last one are left."""
        ground, number = self._ground, ceil(_length(self._ground) / CYCLE)
        for _ in range(number):
            ground.until(segments.ready, "making segments", TO_ARRIVE)
            last = segments.leave() + FEW
            ground.until(lambda last=last: segments.drawn() >= last, "publishing", TO_ARRIVE)  # type: ignore[misc]
        ground.until(segments.ready, "making segments", TO_ARRIVE)
        segments.near_the_end(ALL + round(ground.sizes.load * _length(ground) / 2))
        with ground.conn.transaction():  # every partition has something to save
            ground.outbox().publish_many(ground.conn, one_for_each_partition(-ALL))
        self._until_arrived()
        ground.until(lambda: segments.passed() >= number, "saving", TO_ARRIVE)

    def judge(self, phases: list[PausePhase]) -> None:
        """Wait for what is on its way, and find each phase's pauses."""
        seen, arrived = self._until_arrived()
        deliveries = [Span(span.ended, arrived[number]) for number, span in seen.publishes.items()]
        kinds = {
            "publish": [*seen.publishes.values()],
            "delivery": deliveries,
            "gap": [each for pid in {note.pid for note in self._notes} for each in gaps(self._moments(pid))],
            "elsewhere": seen.others,
            "sleep": seen.sleeps,
        }
        controls = [*seen.others, *seen.sleeps]
        for phase in phases:
            for kind, spans in kinds.items():
                within = [each for each in spans if phase.covers(each)]
                if not within:
                    raise PartboxError(f"nothing was seen of {kind} in the phase {phase.name!r}: it was too short")
                phase.found[kind] = distribution(each.ms for each in within)
                phase.pauses[kind] = beyond(within, controls)

    def _until_arrived(self) -> tuple[BystanderNotes, dict[int, int]]:
        """Wait until all that is published by now is delivered; both, by the numbers of the events."""
        seen = self._bystanders.seen()
        self._ground.until(lambda: seen.publishes.keys() <= self._arrived().keys(), "delivering", TO_ARRIVE)
        return seen, self._arrived()

    def _moments(self, pid: int) -> list[int]:
        return [note.at for note in self._notes if note.pid == pid]

    def _arrived(self) -> dict[int, int]:
        self._notes.extend(self._notebook.new())
        return {note.number: note.at for note in reversed(self._notes)}


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    ground.fresh()
    statements.open_elsewhere(ground.conn, ground.schema)
    notebook = Notebook(ground.folder / "pauses")
    task = BystanderTask(ground.dsn, ground.schema, ground.sizes.load, ground.folder / "bystanders")
    with BenchNode(ground, ground.outbox(NoteTaker(notebook.path), bell="on"), PROCESSES), Bystanders(task) as others:
        ground.until(others.begun, "the first events", TO_START)
        watch = _Watch(ground, others, notebook)
        still = watch.still()
        changed = watch.changing(PausePhase("changing"))
        if not changed.changes:
            raise PartboxError("no segment could be changed, so nothing was measured: somebody keeps the log locked")
        opened = [
            watch.changing(PausePhase(name, beside))
            for name, beside in (("published", _published), ("early xid", _early), ("read", _read))
        ]
        watch.judge([still, changed, *opened])
    for budget, kind, phases in (
        (PUBLISH, "publish", [changed]),
        (DELIVERY, "delivery", [changed]),
        (PUBLISH_OPEN, "publish", opened),
        (DELIVERY_OPEN, "delivery", opened),
    ):
        if budget.name in wanted:
            yield _result(budget, kind, still, phases)


def _result(budget: Budget, kind: str, still: PausePhase, phases: list[PausePhase]) -> Measured:
    """The longest pause of these phases beyond what the controls had at the same time."""
    note = "p50 / p99 / p99.9 / longest ms, " + "; ".join(each.told(kind) for each in (still, *phases))
    details = {name: value for each in (still, *phases) for name, value in each.plain().items()}
    return Measured(budget.name, max(each.pauses[kind] for each in phases), note, details)


FAMILY = Family((PUBLISH, DELIVERY, PUBLISH_OPEN, DELIVERY_OPEN), _measure)
