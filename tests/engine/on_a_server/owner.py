"""A process that owns partitions of a server's database and is moved by the test: page by page, its handlers end when
the test says so."""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any

import psycopg
from model_clock import ModelClock
from process import Process, Shape
from server_database import ServerDatabase
from statements import ModelConnection

from partbox.events import DeliveredEvent
from partbox.worker.engine.partition import Partition

PARTITION = 5
SCHEMA, DEFAULT = "partbox", "default"
AS_SHIPPED = Shape(1_000, "async", page=4_000, window=1_000, window_bytes=1 << 26, max_parked=1_000, lines=True)


class Owner:
    """The one that is left, from where the saved cursors stand. `events` are those whose handlers run, by id."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: ModelClock, dsn: str, partitions: Sequence[int], shape: Shape
    ) -> None:
        self.clock, self.database = clock, ServerDatabase(clock, dsn)
        self.conn: Any = self.database.conn
        admin = self.database.admin
        for (before,) in admin.execute("select instance_id from partbox.instance").fetchall():
            self.database.bury(before)
        admin.execute("update partbox.partition set assignee = null, suspect_until_id = null")
        self.me = self.database.register()
        self.database.plan(dict.fromkeys(partitions, self.me))
        self.process = Process(self, self.me, "A", shape, loop)
        self.engine, self.poller = self.process.engine, self.process.poller
        self.reader, self.ownership = self.poller.reader, self.poller.ownership
        self._handling: dict[int, Any] = {}
        self.process.go_on("poller", through=True)
        self.tick()

    # What handlers do.

    def begins(self, process: Process, event: DeliveredEvent, before: Sequence[DeliveredEvent] = ()) -> None:
        """Nothing is forbidden here: see World."""

    def ends(self, process: Process, event: DeliveredEvent, outcome: object) -> None:
        """The same."""

    def connection(self, process: Process) -> ModelConnection:
        return ModelConnection(self.database, lambda effects: None)

    # What the test does.

    @property
    def events(self) -> dict[int, DeliveredEvent]:
        found = [(where, event) for where, what in self.process.handling() for event in what.events]
        self._handling = {event.id: where for where, event in found}
        return {event.id: event for _, event in found}

    def partition(self, number: int = PARTITION) -> Partition:
        return self.engine.partitions[number]

    def tick(self) -> Any:
        return self.ownership.tick(self.connection(self.process), self.reader.list_transactions())  # type: ignore[arg-type]

    def read(self) -> list[int]:
        """The ids whose handlers begin after one look, in their order."""
        before = {id(where) for where, _ in self.process.handling()}
        self.clock.now += 0.06
        self.process.go_on("poller", through=True)
        while (free := next((each for each in self.process.actors if self._may_run(each)), None)) is not None:
            self.process.go_on(free)
        return [each.id for where, what in self.process.handling() if id(where) not in before for each in what.events]

    def _may_run(self, actor: str) -> bool:
        return actor.startswith("runner") and self.process.subject(actor) is None

    def read_all(self, steps: int = 30) -> list[int]:
        """The ids that so many looks bring, while nothing is published."""
        return [id for _ in range(steps) for id in self.read()]

    def done(self, *ids: int) -> None:
        assert self.events.keys() >= {*ids}
        for id in ids:
            self.process.finish(self._handling[id], [None])

    def save(self, *, all: bool = True) -> None:
        """Save every partition, or only those that have something to save."""
        if all:
            self.engine.saves.advance_idle(inf)
        self.clock.now += 0.25
        self.process.go_on("saver", through=True)

    def reconnect(self) -> None:
        """The connection is lost, and another session begins."""
        self.process.lose_connection()
        for _ in range(2):
            self.process.go_on("poller", through=True)

    def close(self) -> None:
        self.process.kill()
        self.database.close()


def write(conn: psycopg.Connection[Any], count: int = 1, partition: int = PARTITION) -> None:
    """Publish so many events, each of an aggregate of its own."""
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select %s, gen_random_uuid(), 'Written', '{}' from generate_series(1, %s)",
        [partition, count],
    )
