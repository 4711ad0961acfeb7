"""CPU of the statements of a worker and of a publisher, sent one by one to the bench's log or to a grown one.

The connections are of the same kinds as those of a worker's threads. A single thread sends the statements and does
nothing else, so its CPU is that of the statements alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from psycopg import Connection
from psycopg.conninfo import make_conninfo

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import cursors, idle_check, instances, records, server_incarnation
from partbox.db.operator import segments
from partbox.db.schema.migrate import migrate
from partbox.demo.workspace import drop_schema
from partbox.events.record import ID, PARTITION
from partbox.protocol.cursor import Cursor, ReadMode
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.protocol.quick_poll import to_bits
from partbox.protocol.rows import CursorSave
from partbox.protocol.segments import MIN_AHEAD, IdRange
from partbox.protocol.sweep import plan_brief_sweep
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import CHUNK, BenchDatabase
from partbox_lab.bench.cpu import cpu_seconds

KINDS: Final = ("publish", "quick", "poll", "save")
LEASE: Final = 600.0  # seconds
FIRST: Final = 10_000_000  # ids in the first segment of a schema
ROOM: Final = 40  # events
EVENTS: Final = 5  # published one by one before each poll
ALL: Final = range(256)
SUBSCRIPTION: Final = "default"


class StatementCost:
    """The CPU of one kind of statement: of the client's thread and of the server process."""

    def __init__(self, conn: Connection[Any]) -> None:
        self._pid = conn.info.backend_pid
        self._server = cpu_seconds(self._pid)
        self._client = 0.0
        self._sent = 0

    def of(self, send: Callable[[], Any]) -> Any:
        """Send a statement and return its result."""
        began = time.thread_time()
        found = send()
        self._client += time.thread_time() - began
        self._sent += 1
        return found

    def each(self) -> float:
        """Return the CPU seconds per statement."""
        return (self._client + cpu_seconds(self._pid) - self._server) / self._sent


class OwnedLog:
    """A log whose 256 partitions one instance owns, all caught up, until the stack is closed."""

    def __init__(self, database: BenchDatabase, schema: str, stack: ExitStack) -> None:
        self._schema = schema
        self._outbox = database.outbox(schema=schema)
        dsn = make_conninfo(database.dsn, application_name=database.name)

        def opened(*, prepared: bool) -> Any:
            return stack.enter_context(connect(dsn, lease=LEASE, prepared=prepared, name=database.name))

        # Each kind of statement has its own connection, so that the server processes can be measured separately.
        self._publisher = opened(prepared=False)
        self._quick, self._full, self._saver = (opened(prepared=True) for _ in range(3))
        for each in (self._quick, self._full, self._saver):
            server_incarnation.note_incarnation(each, server_incarnation.read_incarnation(each, schema))
            use_raw_loaders(each)
        self._own()
        stack.callback(instances.bury_instances, self._publisher, schema, [self._me], known_dead=True)

    def _own(self) -> None:
        """Claim every partition at the end of the log."""
        conn, schema = self._publisher, self._schema
        position = statements.position(conn, schema)
        statements.rewind(conn, schema, position)
        (self._me,) = instances.register_instances(
            conn,
            schema,
            subscription=SUBSCRIPTION,
            node="bench",
            hostname="bench",
            pids=[0],
            version="bench",
            lease=LEASE,
        ).values()
        seen = instances.list_assignees(conn, schema, SUBSCRIPTION)
        instances.assign_partitions(conn, schema, SUBSCRIPTION, [self._me], seen, [self._me] * len(seen))
        owned = cursors.claim_partitions(conn, schema, SUBSCRIPTION, self._me)
        self._epochs = {each.partition: each.epoch for each in owned}
        self._last = dict.fromkeys(self._epochs, position.last_id)
        self._horizon = Horizon()
        self._horizon.note_claimed_floor(position.last_id)
        self._horizon.add_fence(idle_check.run_check(self._full, schema, []).fence)
        self._page = Page(position.snapshot, position.last_id)
        self._number = 0

    def costs(self, cycles: int) -> dict[str, float]:
        """Send `cycles` cycles of live traffic, and return the CPU seconds per statement for each of KINDS."""
        conns = (self._publisher, self._quick, self._full, self._saver)
        costs = publish, quick, poll, save = [StatementCost(each) for each in conns]
        for _ in range(cycles):
            for _ in range(EVENTS):
                publish.of(self._publish)
            poll.of(self._asked())
            moved = quick.of(self._look)
            save.of(partial(self._save, moved))
        return dict(zip(KINDS, (each.each() for each in costs), strict=True))

    def _publish(self) -> None:
        self._number += 1
        payload, key = {"number": self._number, "note": "x" * 150}, f"order-{self._number % 5_000}"
        with self._publisher.transaction():
            self._outbox.publish(self._publisher, "OrderPlaced", payload, aggregate_type="Order", aggregate_id=key)

    def _look(self) -> set[int]:
        """Send a quick poll and return the partitions that got events."""
        polled = records.read_new_records(self._quick, self._schema, self._page, to_bits(ALL))
        self._horizon.add_fence(polled.fence)
        snapshot = Snapshot.parse(polled.snapshot)
        self._page = self._horizon.build_page(snapshot, is_complete=True)
        self._horizon.share_page(snapshot, self._page)
        # Rows come in the order of ids, so the last id of a partition wins.
        came = {row[PARTITION]: row[ID] for row in polled.rows}
        self._last |= came
        return {*came}

    def _asked(self) -> Callable[[], Any]:
        """Return a function that sends a full poll for the events that the quick poll will read, with partitions in
        caught-up mode."""
        self._horizon.add_fence(idle_check.run_check(self._full, self._schema, []).fence)
        positions = [Cursor(number, self._last[number], None, ReadMode.CAUGHT_UP) for number in ALL]
        asks = [each.build_request(ROOM, self._page) for each in positions]
        hi = self._horizon.find_ceiling(max(ask.last_id for ask in asks))
        swept = plan_brief_sweep(asks, hi)
        return lambda: records.poll_page(
            self._full, self._schema, asks, self._page, lo=self._page.floor, hi=hi, sweep=swept
        )

    def _save(self, moved: set[int]) -> None:
        page = self._page
        savings = [
            CursorSave(each, self._epochs[each], page.snapshot, self._last[each], page.floor, False) for each in moved
        ]
        cursors.save(self._saver, self._schema, SUBSCRIPTION, self._me, savings)


@contextmanager
def grown(database: BenchDatabase, events: int, each: int) -> Iterator[str]:
    """Hold a schema whose log has `events` records in segments of `each` ids, with some segments ahead. Drop it at the
    end."""
    schema = f"{database.schema}_grown"
    # A killed run leaves its schema behind.
    drop_schema(database.conn, schema)
    try:
        migrate(database.dsn, schema)
        _segment(database, schema, events, each)
        for first in range(1, events + 1, CHUNK):
            database.check()
            if first % (20 * CHUNK) == 1:
                database.say(f"  {first - 1:,} of {events:,} records are there ...")
            statements.load(database.conn, schema, first, min(first + CHUNK - 1, events))
        statements.vacuum(database.conn, schema)
        yield schema
    finally:
        drop_schema(database.conn, schema)


def _segment(database: BenchDatabase, schema: str, events: int, each: int) -> None:
    """Add the segments that the records need, and further segments ahead."""
    needed = max(0, -(-(events - FIRST) // each)) + MIN_AHEAD
    for lower in range(FIRST, FIRST + needed * each, each):
        segments.add_segment(database.conn, schema, IdRange(lower, lower + each))
