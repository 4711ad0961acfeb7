"""Attach, empty, and drop small segments all the time, and have some steps killed in the middle."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import Connection

from partbox import settings
from partbox.db.operator import segments as steps
from partbox.operations.purge import purge
from partbox.protocol import segments as rules
from partbox.protocol.segments import IdRange, Segment
from partbox.segments.attempts import try_step
from partbox_lab.chaos import statements
from partbox_lab.workspace import Workspace

ROLE: Final = "segments"
# The step that each fault kills.
KILLS: Final = {"kill-attach": "attach", "kill-truncate": "truncate", "kill-drop": "drop"}
SIZE: Final = 1_000  # ids of a segment
# Segments above the newest id. Ids use up one segment in `PACE` seconds, so a statement that began to publish before a
# segment was attached never reaches that segment.
AHEAD: Final = 5
PACE = 1.0  # seconds for the ids of one segment
BEAT = 0.2  # seconds
RETRY = 0.2  # seconds
RETAIN: Final = 0.5  # seconds that done events stay
GLANCE = 0.001  # seconds between two looks at the locks
PATIENCE = 5.0  # seconds that a finished step waits for its killer
LOOKS: Final = 60  # purges until leftovers are final


@dataclass(frozen=True, slots=True)
class Leftover:
    """A table, constraint, or record that maintenance should have removed."""

    what: str


def following(segments: Sequence[Segment], drawn: int) -> Iterator[IdRange]:
    """Yield the next id ranges to attach, until `AHEAD` small segments are above the newest id."""
    there = sorted((each.lower, each.upper) for each in segments if each.lower is not None and each.upper is not None)
    small = [upper for lower, upper in there if lower > drawn and upper - lower == SIZE]
    start = max([drawn + AHEAD * SIZE, *small])
    for _ in range(AHEAD - len(small)):
        for lower, upper in there:
            if lower < start + SIZE and upper > start:
                start = upper
        yield IdRange(start, start + SIZE)
        start += SIZE


class SegmentChurn(threading.Thread):
    """A thread that changes segments. `done` counts its steps, and `killed` counts the killed steps by fault."""

    def __init__(self, place: Workspace) -> None:
        super().__init__(name="chaos-segments", daemon=True)
        self._place = place
        self._schema = place.schema
        self._asked: set[str] = set()
        self._moved = 0.0
        self.stopping = threading.Event()
        self.done: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.error: Exception | None = None

    def begin(self) -> None:
        """Use up most ids of the first segment, which is large, and start the thread."""
        with self._place.connect(ROLE) as conn:
            drawn = steps.find_newest_id(conn, self._schema)
            ends = [each.upper for each in steps.list_segments(conn, self._schema) if each.upper and each.upper > drawn]
            statements.leap(conn, self._schema, min(ends) - drawn - AHEAD * SIZE)
        self.start()

    def kill(self, fault: str) -> None:
        """Have the next step of a fault's kind killed. The request stands until a kill succeeds."""
        self._asked.add(fault)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with self._place.connect(ROLE) as conn:
                    while not self.stopping.wait(BEAT):
                        self._look(conn)
            except (psycopg.OperationalError, psycopg.InternalError):
                self.stopping.wait(RETRY)
            except Exception as error:
                self.error = error
                return

    def left_over(self) -> list[Leftover]:
        """Stop the thread, purge everything, and return the remains. Empty if the thread never started."""
        if self.ident is None:
            return []
        self.stopping.set()
        self.join()
        all_of_it = settings.load(dsn=self._place.dsn, schema=self._schema, retain_done=RETAIN / 10)
        with self._place.connect(ROLE) as conn:
            for _ in range(LOOKS):
                purge(lambda: self._place.dsn, all_of_it)
                if not (found := statements.left_over(conn, self._schema)):
                    break
        return [Leftover(what) for what in found]

    def _look(self, conn: Connection[Any]) -> None:
        if time.monotonic() > self._moved + PACE:
            self._moved = time.monotonic()
            statements.leap(conn, self._schema, SIZE)
        found, drawn = steps.list_segments(conn, self._schema), steps.find_newest_id(conn, self._schema)
        for ids in following(found, drawn):
            self._take(conn, "kill-attach", partial(steps.add_segment, conn, self._schema, ids))
        for each, _ in rules.list_expired(found, drawn, RETAIN, None):
            self._take(conn, "kill-truncate", partial(self._empty, conn, each.lower))
        for each in rules.list_empty_segments(found, drawn):
            self._take(conn, "kill-drop", partial(self._drop, conn, each.lower))

    def _empty(self, conn: Connection[Any], lower: int | None) -> str | None:
        return steps.empty_segment(conn, self._schema, lower or 0, RETAIN).problem

    def _drop(self, conn: Connection[Any], lower: int | None) -> str | None:
        problem = steps.detach_segment(conn, self._schema, lower or 0)
        if problem is None:
            steps.drop_detached(conn, self._schema)
        return problem

    def _take(self, conn: Connection[Any], fault: str, step: Callable[[], str | None]) -> None:
        if fault in self._asked:
            self._die(conn, fault, step)
        elif try_step(step) is None:
            self.done[KILLS[fault]] += 1

    def _die(self, conn: Connection[Any], fault: str, step: Callable[[], str | None]) -> None:
        """Run a step that is killed, or killed before its commit. An obstacle to the step leaves the request for the
        next step."""
        over, struck = threading.Event(), threading.Event()
        killer = threading.Thread(target=self._strike, args=(conn.info.backend_pid, over, struck), daemon=True)
        killer.start()
        try:
            with conn.transaction(force_rollback=True):
                if try_step(step) is None:
                    statements.wait(conn, self._schema, PATIENCE)
        finally:
            over.set()
            killer.join()
            if struck.is_set():
                self.killed[fault] += 1
                self._asked.discard(fault)

    def _strike(self, pid: int, over: threading.Event, struck: threading.Event) -> None:
        """Kill the backend when it holds the exclusive lock that only the change itself takes, unless `over` is set."""
        with suppress(psycopg.OperationalError), self._place.connect("chaos") as conn:
            while not over.wait(GLANCE):
                if statements.strike(conn, self._schema, pid):
                    struck.set()
                    return
