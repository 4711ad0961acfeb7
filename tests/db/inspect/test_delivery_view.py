"""The view `delivery`: its bounds hold the delivery that there was, whatever befell the partition."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from observing import publish

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = ("commit", "claim", "look", "deliver", "save", "note", "others", "release", "die", "replay")
CURSOR = """
update partbox.partition
   set last_id = %s, floor_id = 0, snapshot = %s, saved_at = %s, claimed_at = %s, epoch = %s, owner = %s,
       claimed_id = %s
 where partition = 7
"""
NOTE = "insert into partbox.progress_note values ('default', 7, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing"


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


class Partition:
    """A record of a partition, in the hands of one process after the other, and the rows that they leave.

    The record commits once, and may do so when others above it are through. A delivery that is not saved is lost with
    its process. A note says how far the cursor was saved, and up to which id was read at the save before.
    """

    def __init__(self, record_id: int, xid: int) -> None:
        self.id, self.xid = record_id, xid
        self.now = self.published = 10
        self.committed = self.known = self.unsaved = self.passed = self.sees = False
        self.owner: int | None = None
        self.claimed = self.claimed_id = self.owners = self.last_id = self.reached = 0
        self.saved: int | None = None
        self.delivered: tuple[int, int] | None = None
        self.late = False  # the owner that delivered it had claimed with a cursor above it
        self.noted: list[tuple[Any, ...]] = []

    def do(self, step: str) -> None:
        self.now += 1
        alone = step in ("commit", "claim", "replay")
        if alone or self.owner is not None:
            getattr(self, step)()

    def commit(self) -> None:
        self.committed = True

    def claim(self) -> None:
        if self.owner is None:
            self.owners += 1
            self.owner, self.claimed, self.reached = self.owners, self.now, self.last_id
            self.claimed_id = self.last_id

    def look(self) -> None:
        if self.committed and not self.passed:
            self.known, self.reached = True, max(self.reached, self.id)

    def deliver(self) -> None:
        if self.known and not self.unsaved and not self.passed:
            self.delivered, self.unsaved = (self.now, self.owner or 0), True
            self.late = self.id <= self.claimed_id

    def save(self) -> None:
        if self.unsaved:
            self.passed, self.unsaved, self.sees, self.saved = True, False, True, self.now
            self.last_id = max(self.last_id, self.id)

    def note(self) -> None:
        """Save, and leave a note: nothing above what was read by then can have been read before the last save."""
        before, reached = max(self.saved or 0, self.claimed), self.reached
        self.save()
        self.saved = self.now
        self._note(self.now, at(before), reached)

    def _note(self, when: int, *read: Any) -> None:
        read_at, read_id = read or (None, None)
        who = self.epoch, f"{self.owner} on web", self.claimed_id
        self.noted.append((at(when), self.last_id, self.snapshot, read_at, read_id, *who))

    def others(self) -> None:
        """A record above this one is through, as it may be while this one is not committed."""
        if not self.committed:
            self.reached = self.last_id = self.id + 1
            self.saved = self.now

    def release(self) -> None:
        self.note()
        self._lose()

    def die(self) -> None:
        if self.saved is not None and self.saved >= self.claimed:
            self._note(self.saved)
        self._lose()

    def _lose(self) -> None:
        self.owner, self.known, self.unsaved = None, False, False

    def replay(self) -> None:
        if self.owner is None:
            self.passed, self.last_id = False, min(self.last_id, self.id - 1)

    @property
    def epoch(self) -> int:
        return int(at(self.claimed).timestamp() * 1000)

    @property
    def snapshot(self) -> str:
        return f"{self.xid + 1}:{self.xid + 1}:" if self.sees else f"{self.xid}:{self.xid + 1}:{self.xid}"


@pytest.fixture
def record(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    publish(conn, 7)
    publish(conn, 7)
    conn.execute("update partbox.record set created_at = %s", [at(10)])
    conn.execute("update partbox.subscription set created_at = %s", [at(0)])
    ((id, xid),) = conn.execute("select id, xid::text::bigint from partbox.record order by id limit 1").fetchall()
    return id, xid


TOLD = "select delivered_after, delivered_before, process from partbox.delivery where id = %s"


def told(conn: psycopg.Connection[Any], partition: Partition) -> list[tuple[Any, ...]]:
    """What the view says, after these rows were left."""
    with conn.transaction(force_rollback=True):
        for note in partition.noted:
            conn.execute(NOTE, note)
        owner = None
        if partition.owner is not None:
            ((owner,),) = conn.execute(
                "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
                " values ('default', 'web', 'web', %s, '1', '1 s') returning instance_id",
                [partition.owner],
            ).fetchall()
        saved = None if partition.saved is None else at(partition.saved)
        cursor = [partition.last_id, partition.snapshot, saved, at(partition.claimed), partition.epoch, owner]
        cursor.append(partition.claimed_id)
        conn.execute(CURSOR, cursor)
        return conn.execute(TOLD, [partition.id]).fetchall()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=30))
@example(["claim", "commit", "look", "deliver", "save", "note", "release", "claim", "note"])
@example(["claim", "others", "note", "commit", "look", "note", "deliver", "note"])
@example(["claim", "commit", "look", "deliver", "die", "claim", "look", "deliver", "note"])
@example(["claim", "commit", "look", "deliver", "release", "replay", "claim", "note", "look", "deliver", "note"])
def test_the_time_of_delivery_lies_within_the_bounds_of_the_view_and_its_process_is_named(conn, record, steps):
    partition = Partition(*record)
    for step in steps:
        partition.do(step)
    found = told(conn, partition)
    assert bool(found) == partition.passed
    for after, before, process in found:
        when, owner = partition.delivered
        assert at(10) <= after <= at(when) <= before <= at(partition.now)
        assert process == f"{owner} on web" or (process is None and partition.late)


def test_progress_notes_tell_which_process_delivered_a_record_and_about_when(conn, record):
    partition = Partition(*record)
    for step in ("claim", "note", "commit", "look", "deliver", "note", "release", "claim", "note"):
        partition.do(step)
    ((after, before, process),) = told(conn, partition)
    assert (after, before, process) == (at(11), at(16), "1 on web")


def test_no_process_is_named_if_earlier_progress_notes_are_gone(conn, record):
    partition = Partition(*record)
    for step in ("claim", "note", "commit", "look", "deliver", "note", "release", "claim", "note"):
        partition.do(step)
    partition.claimed, partition.noted = 18, partition.noted[-1:]
    ((_, before, process),) = told(conn, partition)
    assert (before, process) == (at(19), None)


def test_a_record_with_an_attempt_row_of_its_own_shows_exactly_when_it_ended(conn, record):
    id, _ = record
    row = "insert into partbox.attempt values ('default', %s, %s, 1, %s, %s)"
    conn.execute(row, [id, at(20), "failed", "1 on web"])
    conn.execute(row, [id, at(30), "repeated", "2 on web"])
    partition = Partition(*record)
    for step in ("claim", "commit", "look", "deliver", "note"):
        partition.do(step)
    assert told(conn, partition) == [(at(20), at(30), "2 on web")]
    assert conn.execute("select outcome from partbox.delivery where id = %s", [id]).fetchall() == []


ASKED = {
    "partition = partbox.partition_of('7') and aggregate_id = '7'": ("record_1_pkey", "(partition = '40'::smallint)"),
    "partition = 40 and id between 5 and 9": ("record_1_pkey", "(partition = 40)"),
    "id = 5": ("record_1_id_idx", "(id = 5)"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_queries_of_the_delivery_view_use_the_indexes_of_the_log(conn, asked):
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, aggregate_id)"
        " select n % 256, gen_random_uuid(), 'Placed', n::text from generate_series(1, 20000) n"
    )
    conn.execute("vacuum analyze partbox.record")
    plan = "\n".join(line for (line,) in conn.execute(f"explain select * from partbox.delivery where {asked}"))
    index, condition = ASKED[asked]
    found = re.search(rf"{index}\b.*\n.*Cond: (.*)", plan)
    assert found is not None, plan
    assert condition in found[1], plan
    assert "Seq Scan on record_1 " not in plan
