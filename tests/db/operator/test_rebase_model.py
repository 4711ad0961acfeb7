"""A rebase against a model: what each subscription was still to get, it gets, once, whatever the xids in the copy say.

The model knows the rule of the cursor and nothing else. A copy is made of any records, whose xids may lie in this
cluster's past or future, any cursors, and any parked rows; afterwards the log is looked at as pollers look at it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from run_size import examples

from partbox import Outbox
from partbox.db.operator import rebase
from partbox.db.operator.rebase import Rebased

SCHEMA = "partbox"
FAR = (1 << 40) + 1000  # xids that this cluster does not reach
PARTITIONS = (3, 200)
STATES = ("retrying", "deferred", "scheduled", "held", "dead", "ready")

# What a poll returns of a subscription's late records, had its cursors moved to the end of the log.
LATE = """
select r.id from partbox.partition c join partbox.record r on r.partition = c.partition
 where c.subscription = %s and r.id > c.floor_id and not pg_visible_in_snapshot(r.xid, %s::pg_snapshot)
"""


@dataclass(frozen=True)
class Record:
    """A record of the copy; `later`: its time has not come."""

    id: int
    partition: int
    xid: int
    kind: str
    key: str | None
    later: bool


@dataclass(frozen=True)
class Cursor:
    """A saved cursor; `running` is the list of its snapshot."""

    xmax: int
    running: tuple[int, ...]
    last_id: int
    floor_id: int

    @property
    def snapshot(self) -> str:
        xmin = min(self.running, default=self.xmax)
        return f"{xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def shows(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.running

    def consumed(self, record: Record) -> bool:
        """The rule of DESIGN, section 4."""
        if record.id > self.last_id:
            return False
        return record.id <= self.floor_id or self.shows(record.xid)


@dataclass(frozen=True)
class Copy:
    """What a dump held. Cursors by subscription and partition; parked states by subscription and record id."""

    records: tuple[Record, ...]
    cursors: dict[tuple[str, int], Cursor]
    filters: dict[str, tuple[str, ...] | None]
    parked: dict[tuple[str, int], str]
    sequence: int

    def to_get(self, name: str) -> set[int]:
        """The ids that the subscription has not consumed, nor parked, and wants."""
        wanted = self.filters[name]
        return {
            each.id
            for each in self.records
            if not self.cursors[name, each.partition].consumed(each)
            and (name, each.id) not in self.parked
            and (wanted is None or each.kind in wanted)
        }


@st.composite
def copies(draw: st.DrawFn) -> Copy:
    xids = draw(st.sampled_from([st.integers(4, 60), st.integers(FAR, FAR + 60), st.integers(4, 2000)]))
    count = draw(st.integers(0, 12))
    records = tuple(
        Record(
            id,
            draw(st.sampled_from(PARTITIONS)),
            draw(xids),
            draw(st.sampled_from("AB")),
            draw(st.sampled_from(["k", "l", None])),
            draw(st.integers(0, 5)) == 0,
        )
        for id in range(1, count + 1)
    )
    filters = {
        name: draw(st.sampled_from([None, ("A",), ("A", "B")]))
        for name in draw(st.lists(st.sampled_from(["default", "audit", "ünsafe'"]), unique=True))
    }
    cursors = {(name, number): draw(_cursors(xids, count)) for name in filters for number in PARTITIONS}
    parked = {
        (name, each.id): draw(st.sampled_from(STATES))
        for name in filters
        for each in records
        if draw(st.integers(0, 3)) == 0
    }
    return Copy(records, cursors, filters, parked, draw(st.integers(0, 2 * count)))


@st.composite
def _cursors(draw: st.DrawFn, xids: st.SearchStrategy[int], count: int) -> Cursor:
    xmax = draw(xids)
    running = draw(st.lists(st.integers(max(3, xmax - 8), xmax - 1), max_size=4, unique=True))
    return Cursor(xmax, tuple(running), draw(st.integers(0, count)), draw(st.integers(0, count)))


@pytest.fixture(scope="module")
def database(server: Any, template: str) -> Iterator[str]:
    from servers import new_database

    with new_database(server.dsn, template) as dsn:
        yield dsn


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(copy=copies())
def test_every_subscription_gets_its_remaining_records_once_after_a_rebase(database: str, copy: Copy) -> None:
    with psycopg.connect(database, autocommit=True) as conn, psycopg.connect(database) as slow:
        _store(conn, copy)
        slow.execute("select pg_current_xact_id()")  # so that a snapshot lists something
        before = _parked(conn)
        done = rebase.rebase_schema(conn, SCHEMA, {}, force=False)
        assert isinstance(done, Rebased)
        assert rebase.is_healthy(conn, SCHEMA)
        event(f"late: {bool(sum(each.parked for each in done.subscriptions))}")
        for name in copy.filters:
            _gets_what_was_left(conn, copy, name)
        assert before.items() <= _parked(conn).items()  # nothing that was parked is another thing now
        _ids_go_on(conn, copy, done)
        for late_comer in ("beginning", "now"):
            Outbox(database).subscriptions.create(late_comer, late_comer)
        _nothing_comes_twice(conn, [*copy.filters, "beginning", "now"])


def _store(conn: psycopg.Connection[Any], copy: Copy) -> None:
    conn.execute("truncate partbox.record, partbox.partition, partbox.parked, partbox.subscription, partbox.instance")
    conn.execute("delete from partbox.meta where key = 'marker'")
    conn.execute("insert into partbox.meta (key, xid) values ('marker', '3')")
    conn.execute("select setval('partbox.record_id_seq', greatest(%(to)s, 1), %(to)s > 0)", {"to": copy.sequence})
    with conn.cursor() as cursor:
        cursor.executemany(
            "insert into partbox.record (xid, id, partition, event_id, event_type, aggregate_type, aggregate_id,"
            " available_at) values (%s::text::xid8, %s, %s, gen_random_uuid(), %s, 'T', %s,"
            " case when %s then now() + interval '1 h' end)",
            [(each.xid, each.id, each.partition, each.kind, each.key, each.later) for each in copy.records],
        )
        cursor.executemany(
            "insert into partbox.subscription (name, type_filters) values (%s, %s)",
            [(name, types and list(types)) for name, types in copy.filters.items()],
        )
        cursor.executemany(
            "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id, owner)"
            " values (%s, %s, %s, %s, %s, gen_random_uuid())",
            [(*key, each.snapshot, each.last_id, each.floor_id) for key, each in copy.cursors.items()],
        )
        cursor.executemany(
            "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
            " state, blocks, attempts, started_at)"
            " select %s, id, partition, 'T', aggregate_id, event_type, %s, true, 3, now()"
            " from partbox.record where id = %s",
            [(name, state, id) for (name, id), state in copy.parked.items()],
        )


def _parked(conn: psycopg.Connection[Any]) -> dict[tuple[str, int], tuple[Any, ...]]:
    found = "select subscription, record_id, state, blocks, attempts, due_at, started_at from partbox.parked"
    return {(name, id): tuple(rest) for name, id, *rest in conn.execute(found)}


def _gets_what_was_left(conn: psycopg.Connection[Any], copy: Copy, name: str) -> None:
    """It is new, above the cursor, or parked as what it is."""
    records = {each.id: each for each in copy.records}
    rows = conn.execute("select id, status from partbox.record_status where subscription = %s", [name])
    status = dict(rows.fetchall())
    assert all(id > copy.cursors[name, records[id].partition].last_id for id in status if status[id] == "pending")
    wanted = copy.filters[name]
    new = {id for id in status if status[id] == "pending" and (wanted is None or records[id].kind in wanted)}
    late = {id: row for (of, id), row in _parked(conn).items() if of == name and (name, id) not in copy.parked}
    assert new | late.keys() == copy.to_get(name)
    for id, (state, blocks, attempts, due, started) in late.items():
        each = records[id]
        assert state == ("scheduled" if each.later else "ready")
        assert blocks == (each.key is not None and not each.later)
        assert (due is None) == blocks  # what blocks nothing is found by its due time
        assert (attempts, started) == (0, None)


def _ids_go_on(conn: psycopg.Connection[Any], copy: Copy, done: Rebased) -> None:
    """The next id is above every other."""
    used = [len(copy.records), *(each.last_id for each in copy.cursors.values())]
    (next_id,) = conn.execute("select nextval('partbox.record_id_seq')").fetchone() or (0,)
    assert next_id > max(used)
    assert (done.last_id, done.next_after) == (copy.sequence, next_id - 1)


def _nothing_comes_twice(conn: psycopg.Connection[Any], names: list[str]) -> None:
    """Neither now, while a transaction is open that is older than all polls, nor later."""
    (now,) = conn.execute("select pg_current_snapshot()::text").fetchone() or ("",)
    for name in names:
        assert conn.execute(LATE, [name, now]).fetchall() == []
        assert conn.execute("select count(*) from partbox.partition where owner is not null").fetchone() == (0,)
