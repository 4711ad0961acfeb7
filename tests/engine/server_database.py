"""PostgreSQL in the place of the model: the statements of `sql/` answer, to the same worker, in the same scenarios.

It is in one thing the model's better: nothing that a worker believes of the model is true because the model says so.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from database import Database
from model_clock import ModelClock
from model_tables import ParkedLine, PartitionRow
from psycopg import Connection
from server_log import Logged, Publishing, ServerLog
from world import World

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import connect
from partbox.db.delivery import cursors, idle_check, instances, parked, records
from partbox.db.operator import dead
from partbox.protocol.rows import CursorSave, SaveEntry

SCHEMA, SUBSCRIPTION = "partbox", "default"
SHIPPED = {
    name: getattr(module, name)
    for module, names in {
        cursors: ("run_tick", "recheck_idle", "claim_partitions", "take_up_partitions", "save"),
        parked: ("list_blocking", "count_loose_rows", "list_ahead", "list_spills", "refill", "load_due"),
        records: ("poll_page", "read_new_records", "load_bodies", "load_payloads"),
        idle_check: ("run_check", "is_drawn_unchanged"),
        instances: ("mark_leaving", "bury_instances", "register_instances"),
    }.items()
    for name in names
}
"""The functions of a worker, which the model is about to replace."""
PUBLISHING = """insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload,
                                            available_at)
                values (%s, %s, %s, 'Key', %s, ('{}' || repeat(' ', %s))::json,
                        clock_timestamp() + %s * interval '1 second')
                returning id"""


class PublishedLog(ServerLog):
    """What the model would hold, written to the server: each transaction on a connection of its own."""

    def __init__(self, dsn: str, clock: ModelClock) -> None:
        super().__init__(0)
        self._dsn, self._clock = dsn, clock
        self._conns: dict[Publishing, Connection[Any]] = {}

    def _conn(self, transaction: Publishing) -> Connection[Any]:
        if transaction not in self._conns:
            self._conns[transaction] = psycopg.connect(self._dsn)
        return self._conns[transaction]

    def draw_xid(self, transaction: Publishing) -> int:
        if transaction.xid is None:
            row = self._conn(transaction).execute("select pg_current_xact_id()::text::bigint").fetchone()
            assert row is not None
            transaction.xid = row[0]
        return transaction.xid

    def publish(self, transaction: Publishing, partition: int, key: str | None, kind: str, **more: Any) -> Logged:
        record = super().publish(transaction, partition, key, kind, **more)
        delay = None if record.available_at is None else record.available_at - self._clock.now
        values = partition, UUID(bytes=record.event_id), kind, key, record.large, delay
        assert self._conn(transaction).execute(PUBLISHING, values).fetchone() == (record.id,)
        return record

    def end(self, transaction: Publishing, *, commit: bool) -> None:
        super().end(transaction, commit=commit)
        if transaction in self._conns:
            with self._conns.pop(transaction) as conn:
                if not commit:
                    conn.rollback()

    def close(self) -> None:
        for conn in self._conns.values():
            conn.close()


class ServerDatabase(Database):
    """Its methods are the statements that ship. All are sent on one connection: one at a time goes on."""

    def __init__(self, clock: ModelClock, dsn: str) -> None:
        self.clock, self.incarnation = clock, 1
        self.log = PublishedLog(dsn, clock)
        self.meddling, self.arriving = [], []
        self.saved = lambda _: None
        self.conn = connect(dsn, lease=60, name="partbox scenario", prepared=True)
        use_raw_loaders(self.conn)
        self.admin = psycopg.connect(dsn, autocommit=True)  # a supervisor's, and the test's
        self._said = self.clock.now
        self._joined = 0

    def close(self) -> None:
        self.log.close()  # type: ignore[attr-defined]
        self.conn.close()
        self.admin.close()

    def flush(self) -> None:
        """All that is committed is durable."""

    def _ask(self, name: str, *values: Any, **more: Any) -> Any:
        self._let_time_pass()
        return SHIPPED[name](self.conn, SCHEMA, *values, **more)

    def _let_time_pass(self) -> None:
        """The test's clock moves, and the server's does not: what is due in so many seconds is due the sooner."""
        passed, self._said = self.clock.now - self._said, self.clock.now
        self.admin.execute("update partbox.parked set due_at = due_at - %s * interval '1 second'", [passed])

    # Membership.

    def register(self) -> UUID:
        self._joined += 1
        about = {"subscription": SUBSCRIPTION, "node": "n", "hostname": "h", "version": "0", "lease": 60.0}
        instance: UUID = SHIPPED["register_instances"](self.admin, SCHEMA, pids=[self._joined], **about)[self._joined]
        return instance

    def plan(self, assignees: Mapping[int, UUID | None]) -> None:
        for number, assignee in assignees.items():
            self.admin.execute("update partbox.partition set assignee = %s where partition = %s", [assignee, number])

    def leave(self, me: UUID) -> None:
        SHIPPED["mark_leaving"](self.admin, SCHEMA, me)

    def bury(self, victim: UUID) -> None:
        SHIPPED["bury_instances"](self.admin, SCHEMA, [victim], known_dead=True)

    def replay(self, ids: Collection[int]) -> None:
        dead.replay(self.admin, SCHEMA, SUBSCRIPTION, [*ids])
        self.replayed |= frozenset(ids)

    # The statements of a worker.

    def tick(self, *values: Any) -> Any:
        return self._ask("run_tick", SUBSCRIPTION, *values)

    def calm(self, *values: Any) -> Any:
        return self._ask("recheck_idle", SUBSCRIPTION, *values)

    def claim(self, me: UUID) -> Any:
        return self._ask("claim_partitions", SUBSCRIPTION, me)

    def take_up(self, *values: Any) -> Any:
        return self._ask("take_up_partitions", SUBSCRIPTION, *values)

    def save(
        self,
        me: UUID,
        savings: Sequence[CursorSave],
        parks: Sequence[SaveEntry],
        done_ids: Sequence[int],
        *,
        durable: bool,
    ) -> set[int]:
        mine: set[int] = self._ask("save", SUBSCRIPTION, me, savings, parks, done_ids, durable=durable)[0]
        if len(mine) == len(savings):
            self.saved(savings)
        return mine

    def blocking(self, numbers: Collection[int]) -> Any:
        return self._ask("list_blocking", SUBSCRIPTION, numbers)

    def ahead(self, numbers: Collection[int]) -> Any:
        return self._ask("list_ahead", SUBSCRIPTION, numbers)

    def loose_rows(self, numbers: Collection[int]) -> Any:
        return self._ask("count_loose_rows", SUBSCRIPTION, numbers)

    def list_spills(self, numbers: Collection[int]) -> Any:
        return self._ask("list_spills", SUBSCRIPTION, numbers)

    def refill(self, *values: Any) -> Any:
        return self._ask("refill", SUBSCRIPTION, *values)

    def due(
        self,
        numbers: Collection[int],
        taken: Collection[int],
        early: Collection[int],
        room: int,
        share: int,
        letters: int,
    ) -> Any:
        return self._ask("load_due", SUBSCRIPTION, numbers, taken, early, room, share, letters)

    def look(self, listed: Iterable[int]) -> Any:
        return self._ask("run_check", listed)

    def still(self, drawn: int) -> Any:
        return self._ask("is_drawn_unchanged", drawn)

    def poll(self, *values: Any, **more: Any) -> Any:
        return self._ask("poll_page", *values, **more)

    def quick(self, *values: Any) -> Any:
        return self._ask("read_new_records", *values)

    def bodies(self, wanted: Collection[tuple[int, int]]) -> Any:
        return self._ask("load_bodies", wanted)

    def payloads(self, wanted: Collection[tuple[int, int]], most: int) -> Any:
        return self._ask("load_payloads", wanted, most)

    # What there is.

    def pending(self, partition: int) -> list[int]:
        """The ids that are neither done nor parked, by the view."""
        pending = "select id from partbox.record_status where partition = %s and status = 'pending' order by 1"
        return [id for (id,) in self.admin.execute(pending, [partition])]

    @property
    def partitions(self) -> dict[int, PartitionRow]:  # type: ignore[override]
        rows = self.admin.execute(
            """select partition, assignee, owner, epoch, 0.0, suspect_until_id, parked_version, snapshot::text, last_id,
                      floor_id from partbox.partition where partition < 2 order by 1"""
        )
        return {row[0]: PartitionRow(*row) for row in rows}

    @property
    def spills(self) -> dict[tuple[int, str, str], int]:  # type: ignore[override]
        rows = self.admin.execute("select partition, aggregate_type, aggregate_id, from_id from partbox.spill")
        return {(*row[:3],): row[3] for row in rows}

    @property
    def parked(self) -> dict[int, ParkedLine]:  # type: ignore[override]
        rows = self.admin.execute(
            """select record_id, partition, aggregate_type, aggregate_id, state, blocks, attempts,
                      extract(epoch from due_at)::float8, extract(epoch from started_at)::float8, last_error
                 from partbox.parked order by 1"""
        )
        return {row[0]: ParkedLine(*row) for row in rows}


class ServerWorld(World):
    """Its processes are as in any world, and its database is a server's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: ModelClock, dsn: str) -> None:
        super().__init__(loop, clock)
        self.database = ServerDatabase(clock, dsn)
        self.database.saved = self._check_saved
