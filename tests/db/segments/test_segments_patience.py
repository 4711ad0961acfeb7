"""Nobody stands behind a step that waits: it waits for one lock, for a moment, and under that one for nothing.

A step queues for its lock before everybody who comes later. So the first wait is short, and what is locked then is
given back at once where anything else is in the way. Here the first patience is without an end, and the server gives up
a statement that waits on: a step that waited for a second lock would end by that.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.errors import LockNotAvailable
from purgeable import Planted
from waiting import eventually

from partbox.db.operator import segments as steps
from partbox.protocol.segments import IdRange

DONE = 10_000  # an id beyond every segment
STEPS = {
    "segment_add": "bigint, bigint",
    "segment_exclude": "bigint, bigint",
    "segment_empty": "bigint, float8",
    "segment_detach": "bigint",
}
QUEUED = """
select relation::regclass::text, mode from pg_locks
 where not granted and pid = %s and relation is not null
"""
STRONG = """
select array_agg(relation::regclass::text) from pg_locks
 where granted and pid = %s and mode = 'AccessExclusiveLock' and relation::regclass::text like '%%record\\_default'
"""


@pytest.fixture
def patient(small: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Nobody is seen to stay, and the first lock is waited for without an end."""
    small.execute(
        "create or replace function partbox.segment_busy(tables oid[]) returns boolean language sql as 'select false'"
    )
    for name, arguments in STEPS.items():
        small.execute(f"alter function partbox.{name}({arguments}) set lock_timeout = '0'")
    return small


@pytest.fixture
def tender(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A session whose statements the server ends where they wait on."""
    with psycopg.connect(dsn, autocommit=True, options="-c statement_timeout=10s") as conn:
        yield conn


@contextmanager
def using(dsn: str, statement: str) -> Iterator[None]:
    """A transaction that has run the statement, and is open meanwhile."""
    with psycopg.connect(dsn) as user:
        user.execute(statement)
        yield
        user.rollback()


@pytest.mark.parametrize(("name", "arguments"), STEPS.items())
def test_the_lock_timeout_of_a_step_is_half_of_the_time_that_a_publisher_may_be_held_up(conn, name, arguments):
    found = conn.execute(f"select proconfig from pg_proc where oid = 'partbox.{name}({arguments})'::regprocedure")
    assert "lock_timeout=25ms" in found.fetchone()[0]


@pytest.mark.parametrize("table", ["record_default", "record_100"])
def test_a_step_that_has_locked_the_log_waits_for_no_lock_on_any_segment(patient, dsn, tender, table):
    with using(dsn, f"select from partbox.{table}"), pytest.raises(LockNotAvailable):
        steps.detach_segment(tender, "partbox", 100)
    assert steps.detach_segment(tender, "partbox", 100) is None


def test_a_step_that_has_locked_a_segment_does_not_wait_for_its_toast_table(patient, dsn, tender, planted: Planted):
    planted.record(110)
    planted.consume(DONE)
    (toast,) = patient.execute(
        "select reltoastrelid::regclass::text from pg_class where oid = 'partbox.record_100'::regclass"
    ).fetchone()
    with using(dsn, f"select from {toast}"), pytest.raises(LockNotAvailable):
        steps.empty_segment(tender, "partbox", 100, 0.0)
    assert steps.empty_segment(tender, "partbox", 100, 0.0).problem is None


def test_a_segment_counts_as_in_use_if_only_its_toast_table_is_locked(small, dsn, tender):
    (toast, oid) = small.execute(
        "select reltoastrelid::regclass::text, oid from pg_class where oid = 'partbox.record_100'::regclass"
    ).fetchone()
    with using(dsn, f"select from {toast}"):
        assert tender.execute("select partbox.segment_busy(array[%s::oid])", [oid]).fetchone() == (True,)
    assert tender.execute("select partbox.segment_busy(array[%s::oid])", [oid]).fetchone() == (False,)


def test_a_step_that_has_locked_some_partitions_does_not_wait_for_another(patient, dsn, tender, planted: Planted):
    """A worker that saves has locked one of two whose dead records lie in the segment."""
    for partition in (3, 4):
        planted.park(planted.record(110 + partition, partition=partition), "dead", partition=partition, age=1)
    planted.record(110)
    planted.consume(DONE)
    saving = using(dsn, "update partbox.partition set saved_at = now() where partition = 4")
    with saving, pytest.raises(LockNotAvailable):
        steps.empty_segment(tender, "partbox", 100, 0.0)
    assert steps.empty_segment(tender, "partbox", 100, 0.0).problem is None


def test_attaching_a_segment_waits_for_the_log_before_it_locks_out_publishers(patient, dsn, tender):
    with psycopg.connect(dsn) as vacuum, psycopg.connect(dsn, autocommit=True) as publisher:
        vacuum.execute("lock table only partbox.record in share update exclusive mode")
        thread = threading.Thread(target=steps.add_segment, args=(tender, "partbox", IdRange(5_000_000, 7_000_000)))
        thread.start()
        queued = [("partbox.record", "ShareUpdateExclusiveLock")]
        eventually(lambda: publisher.execute(QUEUED, [tender.info.backend_pid]).fetchall() == queued)
        assert publisher.execute(STRONG, [tender.info.backend_pid]).fetchone() == (None,)
        publisher.execute("set lock_timeout = 1")
        publisher.execute("select partbox.publish('T', '{}')")
        vacuum.rollback()
        thread.join()
    assert any(each.lower == 5_000_000 for each in steps.list_segments(patient, "partbox"))


@pytest.mark.parametrize(
    "call",
    [
        "segment_add(5000000, 7000000)",
        "segment_exclude(5000000, 7000000)",
        "segment_empty(100, 0)",
        "segment_detach(200)",
    ],
)
def test_a_step_commits_asynchronously_so_that_no_slow_disk_or_standby_prolongs_its_locks(
    small, dsn, planted: Planted, call
):
    planted.record(110)
    planted.consume(DONE)
    with psycopg.connect(dsn) as tending:
        tending.execute(f"select partbox.{call}")
        assert tending.execute("show synchronous_commit").fetchone() == ("off",)
        tending.commit()
        assert tending.execute("show synchronous_commit").fetchone() == ("on",)


def test_no_segment_file_is_deleted_while_the_log_is_locked(small, look):
    """Who deletes a file has to wait for the disc first. So a shell is taken out, and then dropped."""
    assert steps.detach_segment(small, "partbox", 100) is None
    assert small.execute("select count(*) from partbox.record_100").fetchone() == (0,)
    assert look().dropped == ("record_1",)
    for gone in ("record_1", "record_100"):
        assert small.execute("select to_regclass(%s)", [f"partbox.{gone}"]).fetchone() == (None,)
