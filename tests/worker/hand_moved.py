"""The delivering half of a worker without threads and without a database: the test is runner, poller and saver.

A lane's queue calls back at each event that its runner takes, just before: so whatever another thread may do between
two steps of a runner is done there, by the test.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from contexts import context

from partbox.handlers import Handlers
from partbox.observe import Observers
from partbox.protocol.progress import Page
from partbox.protocol.rows import Owned, Stored
from partbox.worker.engine.claims import ParkedIndex
from partbox.worker.engine.intake import Brought
from partbox.worker.engine.key import Key
from partbox.worker.engine.parked_turns import Woken
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.ready_queue import BUNDLE, ReadyQueue
from partbox.worker.engine.runs import Rest
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.dispatcher import Dispatcher, Drive
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import LaneRunner, Walk
from partbox.worker.runners.settlement import Settlement

KEY: Key = ("Key", "k")
FAR = 1e12
NOBODY = Observers()


class Interleaved(deque[Any]):
    """The queue of a lane; `meanwhile` is what others do just before the runner takes the next event."""

    meanwhile: Callable[[], None]

    def popleft(self) -> Any:
        self.meanwhile()
        return super().popleft()


def row(id: int, key: str = "k", event_type: str = "Counted") -> tuple[Any, ...]:
    return (5, id, id.to_bytes(16), event_type, "Key", key, None, b"{}", None, None, None, None, bytes(8), bytes(8))


class HandMoved:
    """One partition with one lane, whose handler is the test's; in a `lone` one what is new stands in line."""

    def __init__(self, handlers: Handlers, *, lone: bool = False, bundle: int = BUNDLE) -> None:
        queue = ReadyQueue(bundle)
        self.context = context(handlers=handlers, concurrency=100, queue=queue, lone=lone)
        self.slot, self.engine, self.routes = self.context.slot, self.context.engine, self.context.routes
        self.slot.trust_until(FAR, FAR)
        with suppress(AttributeError):  # where tests do not check it
            self.engine.lock.strict = True  # type: ignore[attr-defined]
        reports = Reports(NOBODY, self.routes)
        self.settlement = Settlement(self.engine, reports)
        self.runner = LaneRunner(self.engine, self.routes, self.slot, self.settlement)
        self.dispatcher = Dispatcher(self.context, self.runner, self.settlement, Drive(queue, EventLoop()))
        self.intake, self.turns = self.engine.intake, self.engine.turns
        self.engine.claims.adopt([Owned(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
        self.partition = self.engine.partitions[5]
        self._load([])
        self.read_to = 0
        self.turn_begins = 0.0  # a turn is over already: one event each; FAR: it never is
        self.meanwhile: list[Callable[[], None]] = []  # what others do, one at each event that is taken

    @property
    def lane(self) -> Lane:
        return self.partition._lanes.get(KEY) or self.partition.line

    def read(self, *ids: int, keys: str = "") -> None:
        """A page brings these, of one aggregate if no `keys` are given."""
        rows = list(map(row, ids, keys or "k" * len(ids)))
        page, brought = Page("1:1:", 0), Brought(rows, {}, {}, len(rows), 0, delayed=False)
        ask = self.partition.cursor.ask(len(rows) + 1, page)
        moved = self.intake.page([(self.partition, ask, 0)], page, brought, together=True)
        self.intake.hand_over(moved, brought)
        with self.engine.lock:
            self._instrument()

    def reload(self, *stored: int, state: str = "ready") -> None:
        """A command has changed parked rows: these block the key, as the database says. Those of others stay."""
        with self.engine.lock:
            chains = {key: chain for key, chain in self.partition.parked.chains.items() if key != KEY}
            others = [(*key, row) for key, chain in chains.items() for row in chain if not row.unsaved]
            rows = [Stored(5, id, "Key", "k", state, 0, None, False, None) for id in stored]
            rows += [Stored(5, row.id, *key, row.state, row.attempts, row.due, False, None) for *key, row in others]
        self._load(rows)

    def _load(self, rows: Sequence[Stored]) -> None:
        claims, index = self.engine.claims, ParkedIndex(rows, {5: len(rows)}, ())
        assert claims.loaded(claims.loading([5]), index, {5: 0}, 0.0) == {5}

    def awake(self) -> list[Woken]:
        """The first half of running what is blocked: its rows count as loaded, and their bodies are asked for."""
        return self.turns.wake(FAR, 50)[0]

    def bring(self, woken: Sequence[Woken]) -> None:
        """The second half: the bodies are there."""
        self.turns.queue(woken, {each.id: row(each.id, str(key[1])) for _, key, rows in woken for each in rows}, {})
        with self.engine.lock:
            self._instrument()

    def save(self) -> None:
        """A save of all that there is to save, committed at once."""
        self.engine.saves.committed(self.engine.saves.gather(), 0.0)

    def lose_connection(self) -> None:
        """Forget what was read, and read the saved cursor."""
        with self.engine.lock:
            saved, epoch = self.partition.progress.target().last_id, self.partition.epoch + 1
        self.engine.claims.take_up([Owned(5, epoch, "1:1:", saved, 0, 0, None)], 0.0)
        self._load([])
        with self.engine.lock:
            self._instrument()

    def turn(self) -> bool:
        """One turn of a runner; whether there was a lane for it."""
        lanes = self.engine.runs.next([], time.monotonic(), trusted=True, waits=False)
        if isinstance(lanes, Rest):
            return False
        self.engine.runs.end(self.dispatcher._walk_all(lanes, self.walk()))
        return True

    def walk(self) -> Walk:
        return self.runner.begin(self.turn_begins)

    def go_on(self, most: int = 100) -> None:
        """Turns, saves and what becomes due, until nothing is left to do."""
        for _ in range(most):
            busy = self.turn()
            self.save()
            found = self.awake()
            self.bring(found)
            if not busy and not found:
                return

    def _instrument(self) -> None:
        for lane in (self.partition.line, *self.partition._lanes.values()):
            if not isinstance(lane.queue, Interleaved):
                lane.queue = Interleaved(lane.queue)
                lane.queue.meanwhile = self._others

    def _others(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()
