"""Only what is terminal in every subscription, and expired, is purged."""

from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ownership import DEFAULT
from purgeable import ANCIENT, OLD, YOUNG, Planted
from run_size import examples

from partbox import Outbox
from partbox.db.schema.migrate import migrate
from partbox.errors import SchemaError
from partbox.operations.purge import Purged, purge
from partbox.settings import load

SLOW = "slow"


@pytest.fixture
def planted(conn) -> Planted:
    return Planted(conn)


@pytest.fixture
def purged(dsn):
    """Purges with the default retentions and the settings given."""

    def run(dry_run: bool = False, **keywords: Any) -> Purged:
        return purge(lambda: dsn, load(**keywords), dry_run=dry_run)

    return run


def test_a_purge_removes_only_records_that_are_expired_and_terminal_in_every_subscription(planted, purged):
    """The acceptance: every state, a fast subscription, and a slow one that is paused."""
    planted.subscribe(SLOW)
    planted.conn.execute("update partbox.subscription set paused_at = now() where name = %s", [SLOW])
    planted.consume(100)
    planted.consume(60, 50, SLOW)
    going = [planted.record(id) for id in (1, 2, 50)]
    for id in (51, 60):  # passed by the slow cursor, but above its floor: a late one may yet come
        planted.record(id)
    planted.record(61)  # the slow one has not read it
    planted.record(101)  # nobody has
    planted.record(200, partition=7)
    planted.consume(300, partition=7)  # only the fast one
    for id, state in enumerate(("retrying", "deferred", "scheduled", "held", "ready"), start=10):
        planted.record(id)
        planted.park(id, state, due=state in ("retrying", "deferred", "scheduled"), blocks=state != "scheduled")
        planted.record(id + 10)  # the same, parked by the slow one only
        planted.park(id + 10, state, SLOW, due=state in ("retrying", "deferred", "scheduled"))
    deaths = {
        30: {"age": 29},  # died within its retention
        31: {"blocks": True},  # its key waits for it
        32: {"due": True},  # its dead-letter hook is owed
    }
    for id, how in deaths.items():
        planted.park(planted.record(id), "dead", **how)
    for id in (33, 34, 35, 55):
        planted.record(id)
    planted.park(33, "dead")
    planted.park(34, "dead", SLOW)
    planted.park(35, "dead")
    planted.park(35, "retrying", SLOW, due=True, blocks=True)
    planted.park(55, "dead", SLOW)  # above its floor: the row alone says that it was consumed
    planted.park(planted.record(36, age=YOUNG), "dead", age=ANCIENT)  # a clock that was wrong
    going += [33, 34]
    planted.record(40, age=YOUNG)

    before, rows = planted.left(), planted.parked()
    expected = Purged(records=5, dead=4)
    assert purged(dry_run=True) == expected
    assert (planted.left(), planted.parked()) == (before, rows)
    assert purged() == expected
    assert sorted(set(before) - set(planted.left())) == sorted(going)
    assert sorted(set(rows) - set(planted.parked())) == [(DEFAULT, 33), (DEFAULT, 35), (DEFAULT, 36), (SLOW, 34)]
    assert purged() == Purged()

    planted.conn.execute("delete from partbox.parked")
    planted.consume(500)
    planted.consume(500, 500, SLOW)
    purged()
    assert planted.left() == [36, 40]


@dataclass
class Model:
    """The rule in plain Python."""

    records: dict[int, tuple[int, float]] = field(default_factory=dict)
    cursors: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    rows: dict[tuple[str, int], tuple[str, float, bool, bool]] = field(default_factory=dict)

    def passed(self, name: str, id: int) -> bool:
        return id <= min(self.cursors[name, self.records[id][0]])

    def rows_left(self) -> list[tuple[str, int]]:
        return sorted(
            (name, id)
            for (name, id), (state, age, blocks, due) in self.rows.items()
            if state != "dead" or age <= 30 or blocks or due or not self.passed(name, id)
        )

    def rows_of_records_left(self) -> list[tuple[str, int]]:
        """After one more purge: a discarded row goes after its record."""
        return [each for each in self.rows_left() if self.rows[each][0] != "discarded" or each[1] in self.left()]

    def left(self) -> list[int]:
        kept = {id for name, id in self.rows_left() if self.rows[name, id][0] != "discarded"}
        names = {name for name, _ in self.cursors}
        return sorted(
            id
            for id, (_, age) in self.records.items()
            if age <= 7 or id in kept or not all(self.passed(name, id) for name in names)
        )


IDS = st.integers(1, 12)
ROWS = st.tuples(
    st.sampled_from(["dead", "dead", "dead", "discarded", "retrying", "held"]),
    st.sampled_from([29.0, 31.0]),
    *[st.booleans()] * 2,
)
MODELS = st.builds(
    Model,
    records=st.fixed_dictionaries(
        {id: st.tuples(st.sampled_from([0, 255]), st.sampled_from([6.0, 8.0])) for id in range(1, 13)}
    ),
    cursors=st.one_of(
        st.fixed_dictionaries({(n, p): st.tuples(IDS, IDS) for n in names for p in (0, 255)})
        for names in ([DEFAULT], [DEFAULT, SLOW])
    ),
    rows=st.dictionaries(st.tuples(st.just(DEFAULT), IDS), ROWS, max_size=6),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=MODELS, batch=st.integers(1, 5))
def test_a_purge_leaves_exactly_the_records_of_the_model(dsn, conn, model, batch):
    conn.execute("truncate partbox.record, partbox.parked, partbox.subscription, partbox.partition")
    planted = Planted(conn)
    for name in {name for name, _ in model.cursors}:
        planted.subscribe(name)
    for (name, partition), (last_id, floor_id) in model.cursors.items():
        planted.consume(last_id, floor_id, name, partition=partition)
    for id, (partition, age) in model.records.items():
        planted.record(id, partition, age)
    for (name, id), (state, age, blocks, due) in model.rows.items():
        planted.park(id, state, name, partition=model.records[id][0], age=age, blocks=blocks, due=due)
    went = Purged(records=len(model.records) - len(model.left()), dead=len(model.rows) - len(model.rows_left()))
    counted = purge(lambda: dsn, load(), dry_run=True)
    assert purge(lambda: dsn, load(purge_batch=batch)) == went == counted
    assert (planted.left(), planted.parked()) == (model.left(), model.rows_left())
    purge(lambda: dsn, load())
    assert planted.parked() == model.rows_of_records_left()


def test_a_subscription_without_a_cursor_keeps_everything(planted, purged):
    planted.record(1)
    planted.consume(10)
    planted.conn.execute("insert into partbox.subscription (name) values ('half')")
    assert purged() == Purged()


def test_retentions_count_from_publish_and_from_death(planted, purged):
    planted.consume(10)
    planted.record(1, age=3)
    planted.park(planted.record(2, age=100), "dead", age=5)
    assert purged(retain_done="4d", retain_dead="6d") == Purged()
    assert purged(retain_done="2d", retain_dead="6d") == Purged(records=1)
    assert purged(retain_done="4d", retain_dead="4d") == Purged(records=1, dead=1)
    planted.record(3, age=0)
    assert purged(retain_done=0) == Purged(records=1)
    assert purged(retain_done=1e299) == Purged()


def test_a_discarded_row_does_not_keep_its_record_and_goes_after_it(planted, purged):
    for id, age in ((1, YOUNG), (2, OLD)):
        planted.park(planted.record(id, age=age), "discarded")
    planted.consume(10)
    assert purged() == Purged(records=1)
    assert (planted.left(), planted.parked()) == ([1], [(DEFAULT, 1), (DEFAULT, 2)])
    assert purged() == Purged(dead=1)
    assert planted.parked() == [(DEFAULT, 1)]


def test_old_keys_and_inbox_rows_go_and_young_ones_stay(conn, purged):
    for days in (6, 8, 29, 31):
        created = f"clock_timestamp() - interval '{days} days'"
        conn.execute(f"insert into partbox.idempotency select 'k{days}', gen_random_uuid(), {created}".encode())
        conn.execute(f"insert into partbox.inbox select 'c{days}', gen_random_uuid(), {created}".encode())
    assert purged(dry_run=True) == purged() == Purged(keys=3, inbox=1)
    assert conn.execute("select key from partbox.idempotency").fetchall() == [("k6",)]
    assert sorted(conn.execute("select consumer from partbox.inbox").fetchall()) == [("c29",), ("c6",), ("c8",)]


def test_without_a_subscription_records_go_by_age_alone(planted, purged, dsn):
    planted.conn.execute("delete from partbox.partition")
    planted.conn.execute("delete from partbox.subscription")
    planted.record(1)
    planted.record(2, partition=255)
    planted.record(3, age=YOUNG)
    with psycopg.connect(dsn) as writer:
        Planted(writer).record(4)  # not committed yet
        assert purged(dry_run=True) == purged() == Purged(records=2)
        writer.commit()
    assert planted.left() == [3, 4]
    assert purged() == Purged(records=1)


def test_a_logical_copy_is_not_purged(planted, purged):
    """Its cursors are those of another cluster, and might call done what nobody has read."""
    planted.consume(100)
    planted.record(1)
    planted.conn.execute("update partbox.meta set xid = '3' where key = 'marker'")
    with pytest.raises(SchemaError, match="is a logical copy"):
        purged()
    assert planted.left() == [1]


def test_the_outbox_purges_from_python(dsn, planted):
    planted.consume(100)
    planted.record(1)
    outbox = Outbox(dsn)
    assert outbox.purge(dry_run=True) == Purged(records=1)
    assert planted.left() == [1]
    assert outbox.purge() == Purged(records=1)
    assert planted.left() == []


def test_another_schema_s_purge_touches_only_its_own(dsn, planted):
    name = "o'x\"; %s {x} %I"
    migrate(dsn, name)
    planted.consume(100)
    planted.park(planted.record(1), "dead")
    assert purge(lambda: dsn, load(schema=name)) == Purged()
    assert planted.left() == [1]
