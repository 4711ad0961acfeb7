"""A worker that may see less than everything reads nothing: every table, and every way in which it can be hidden.

A worker lives through one way after the other, table by table, while events are published. Nothing may be lost or come
twice, `partbox doctor` names the cause, and all goes on by itself when it is over.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import psycopg
import pytest
from psycopg import sql
from roles import Cast, cast_of
from waiting import eventually

from partbox import Outbox
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import limits_of
from partbox.errors import PublishError, SchemaError
from partbox.settings import load
from partbox.worker.poller.log_poll import LogReader

pytestmark = pytest.mark.every_version("privileges, row security and errors of the server")

TABLES = ("record", "partition", "parked", "instance", "subscription", "meta")
KEYS = 12
NEEDS_INSERT = ("instance", "parked")
AGAIN = "unsaved events are delivered again"
"""The words of a worker whose lease ended because it neither read nor saved for too long."""
MAY_BE_HIDDEN = ("subscription", "meta")  # read when a session begins, or a plan is made
LOCKED_LOG = ("locked", "record")
"""Nobody can publish meanwhile, so an idle worker does not read the log and notices nothing."""


class Walk:
    """An outbox whose worker is not the owner of the tables, and its deliveries. One event in five fails twice."""

    def __init__(self, conn: psycopg.Connection, cast: Cast, caplog: pytest.LogCaptureFixture) -> None:
        self.conn = conn
        self.cast = cast
        self.log = caplog
        self.outbox = Outbox(cast.of("worker"), lease=1, heartbeat=0.2, retry="fixed:0.05")
        self.outbox.on("*")(self._handle)
        self.got: defaultdict[str, list[int]] = defaultdict(list)
        self.published: defaultdict[str, list[int]] = defaultdict(list)
        self.lost = False  # a lease has ended, and with it what was not saved
        self._numbers = count()

    def _handle(self, event) -> None:
        if event.payload % 5 == 0 and event.attempt <= 2:
            raise ValueError("twice")
        self.got[event.aggregate_id].append(event.payload)

    def publish(self, events: int = 15) -> None:
        with self.conn.transaction():
            for number in [next(self._numbers) for _ in range(events)]:
                key = str(number % KEYS)
                self.outbox.publish(self.conn, "T", number, aggregate_id=key)
                self.published[key].append(number)

    def all_came(self) -> bool:
        """True once everything came; fails at once if anything is out of order, or came twice though no lease ended."""
        self.lost = self.lost or any(AGAIN in each.getMessage() for each in self.log.records)
        got = {key: [*dict.fromkeys(numbers)] if self.lost else numbers for key, numbers in self.got.items()}
        for key, numbers in got.items():
            assert numbers == self.published[key][: len(numbers)], key
        return got == self.published

    def noticed(self) -> bool:
        """True if the worker has said that something is wrong."""
        return any(each.levelno >= logging.ERROR for each in self.log.records)

    def doctor(self) -> str:
        """What doctor says, all of it."""
        settings = load(dsn=self.conn.info.dsn)
        limits = limits_of(settings, 0.0)
        try:
            report = examine_outbox(lambda: self.conn.info.dsn, settings, limits, wait=lambda _: None)
        except SchemaError as error:
            return f"schema: {error}"
        found = [each for each in report.findings if each.severity != "note"]
        return "\n".join(f"{each.cause}: {each.summary} {each.evidence}" for each in found)

    def run(self, text: str, table: str = "") -> None:
        names = {"table": sql.Identifier("partbox", table), "worker": sql.Identifier(self.cast.worker)}
        names |= {"gone": sql.Identifier(f"{table}_gone"), "hidden": sql.Identifier("partbox", f"{table}_gone")}
        self.conn.execute(sql.SQL(text).format(**names, name=sql.Identifier(table)))

    def grant_again(self, table: str) -> None:
        migrate(self.conn.info.dsn, roles=Roles(workers=(self.cast.worker,)))

    @contextmanager
    def secured(self, table: str) -> Iterator[None]:
        self.run("alter table {table} enable row level security", table)
        yield
        self.run("alter table {table} disable row level security", table)

    @contextmanager
    def partly_secured(self, table: str) -> Iterator[None]:
        """As for tenants: some rows are to be seen, and all may be written."""
        self.run("create policy part on {table} using (random() < 0.5) with check (true)", table)
        with self.secured(table):
            yield
        self.run("drop policy part on {table}", table)

    @contextmanager
    def unreadable(self, table: str) -> Iterator[None]:
        self.run("revoke select on {table} from {worker}", table)
        yield
        self.grant_again(table)

    @contextmanager
    def unwritable(self, table: str) -> Iterator[None]:
        self.run("revoke insert, update on {table} from {worker}", table)
        yield
        self.grant_again(table)

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        with psycopg.connect(self.conn.info.dsn) as other:
            other.execute(sql.SQL("lock table {} in access exclusive mode").format(sql.Identifier("partbox", table)))
            yield
            other.rollback()

    @contextmanager
    def gone(self, table: str) -> Iterator[None]:
        self.run("alter table {table} rename to {gone}", table)
        yield
        self.run("alter table {hidden} rename to {name}", table)

    @contextmanager
    def deleted(self, table: str, rows: str = "true") -> Iterator[None]:
        """Delete rows by hand, and put them back as they were."""
        with self.conn.transaction():
            self.run("create table {hidden} (like {table})", table)
            moved = f"with gone as (delete from {{table}} where {rows} returning *) insert into {{hidden}} table gone"
            self.run(moved, table)
        yield
        with self.conn.transaction():
            self.run("insert into {table} table {hidden}", table)
            self.run("drop table {hidden}", table)

    @contextmanager
    def deleted_in_part(self, table: str) -> Iterator[None]:
        with self.deleted(table, "partition % 5 = 0"):
            yield

    @contextmanager
    def replaced(self, table: str) -> Iterator[None]:
        with self.conn.transaction():
            self.run("alter table {table} rename to {gone}", table)
            self.run("create table {table} (like {hidden} including defaults including generated)", table)
            self.run("grant all on {table} to {worker}", table)
        yield
        with self.conn.transaction():
            self.run("drop table {table}", table)
            self.run("alter table {hidden} rename to {name}", table)

    @contextmanager
    def viewed(self, table: str) -> Iterator[None]:
        with self.conn.transaction():
            self.run("alter table {table} rename to {gone}", table)
            self.run("create view {table} as select * from {hidden} where false", table)
            self.run("grant all on {table} to {worker}", table)
        yield
        with self.conn.transaction():
            self.run("drop view {table}", table)
            self.run("alter table {hidden} rename to {name}", table)

    @contextmanager
    def kept(self, table: str, event: str) -> Iterator[None]:
        """A trigger of somebody else keeps rows as they are."""
        with self.conn.transaction():
            self.run(
                "create function drops() returns trigger language plpgsql as 'begin return null; end';"
                f"create trigger drops before {event} on {{table}} for each row execute function drops()",
                table,
            )
        yield
        self.run("drop function drops() cascade", table)


# A test changes tables in another order than a worker locks them. PostgreSQL ends the session that has waited for its
# deadlock_timeout first.
WORKERS_GIVE_WAY = "set deadlock_timeout = '10min'"


@pytest.fixture
def walk(conn, caplog) -> Iterator[Walk]:
    conn.execute(WORKERS_GIVE_WAY)
    with cast_of(conn.info.dsn) as cast:
        yield Walk(conn, cast, caplog)


WAYS: dict[str, tuple[Callable[[Walk, str], object], str, tuple[str, ...]]] = {
    "row security": (Walk.secured, "row-security", TABLES),
    "row security for some rows": (Walk.partly_secured, "row-security", TABLES),
    "no privilege to read": (Walk.unreadable, "privileges", (*TABLES, "record_id_seq")),
    "no privilege to write": (Walk.unwritable, "privileges", NEEDS_INSERT),
    "locked": (Walk.locked, "locks", TABLES),
    "renamed": (Walk.gone, "displaced", TABLES),
    "another table": (Walk.replaced, "displaced", TABLES),
    "a view": (Walk.viewed, "displaced", TABLES),
    "rows deleted": (Walk.deleted, "displaced", ("partition",)),
    "some rows deleted": (Walk.deleted_in_part, "displaced", ("partition",)),
}


USUAL = {"row security", "no privilege to read", "locked", "some rows deleted"}
"""One way for each cause; the others are thorough."""

# What a worker writes while it works, so that it notices. On `record` a publisher does.
WRITTEN = {
    ("parked", "insert"),
    ("parked", "update"),
    ("parked", "delete"),
    ("partition", "update"),
    ("instance", "update"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("event", ["insert", "update", "delete"])
def test_a_trigger_that_discards_changes_for_a_while_loses_repeats_and_reorders_nothing(walk, event):
    """Every table: what is not written is not believed to be."""
    with walk.outbox.worker():
        for table in TABLES:
            walk.publish()
            eventually(walk.all_came)
            walk.log.clear()
            with walk.kept(table, event):
                if (table, event) == ("record", "insert"):
                    with pytest.raises(PublishError, match="keeps out what is published"), walk.conn.transaction():
                        walk.outbox.publish(walk.conn, "T", 0)
                else:
                    walk.publish()
                eventually(lambda table=table: walk.noticed() or (table, event) not in WRITTEN)
                assert f"drops on {table}" in walk.doctor()
            walk.publish()
            eventually(walk.all_came)


@pytest.mark.parametrize("seconds", [0, pytest.param(5, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "way", [each if each in USUAL else pytest.param(each, marks=pytest.mark.thorough) for each in WAYS]
)
def test_hiding_a_table_for_a_while_loses_repeats_and_reorders_nothing(walk, way, seconds):
    """For longer than a lease at full size."""
    hide, cause, tables = WAYS[way]
    silenced = way in ("locked", "renamed", "another table", "a view")
    with walk.outbox.worker():
        for table in tables:
            walk.publish()
            eventually(walk.all_came)
            walk.log.clear()
            with hide(walk, table):
                until = time.monotonic() + seconds

                def seen(table: str = table, until: float = until) -> bool:
                    if not (table == "record" and silenced) and (walk.got == walk.published or seconds):
                        walk.publish()
                    may_miss = table in MAY_BE_HIDDEN or (way, table) == LOCKED_LOG
                    return time.monotonic() > until and (walk.noticed() or may_miss)

                eventually(seen, timeout=60, interval=0.05)
                said = walk.doctor()
                assert cause in said or (table == "meta" and "table meta" in said), (table, said)
            walk.publish()
            eventually(walk.all_came)


def test_a_worker_goes_on_when_its_schema_is_dropped_and_created_again(dsn, conn):
    """Dropped and initialised again while developing: the session's oids and ids mean nothing any more."""
    outbox, got = Outbox(dsn, lease=2, heartbeat=0.3), []
    outbox.on("*")(lambda event: got.append(event.payload))
    conn.execute(WORKERS_GIVE_WAY)
    with outbox.worker():
        for number in range(3):
            with conn.transaction():
                outbox.publish(conn, "T", number)
            eventually(lambda number=number: got == [*range(number + 1)])
            conn.execute("drop schema partbox cascade")
            migrate(dsn)


def test_a_session_whose_cached_plans_no_longer_fit_is_replaced(dsn, conn, monkeypatch):
    """A column may have another type after an upgrade: what was prepared fails for as long as its session lasts."""
    outbox, got, sessions = Outbox(dsn, lease=2, heartbeat=0.3), [], []
    outbox.on("*")(lambda event: got.append(event.payload))
    read = LogReader.read

    def reading(self, session, *more):
        sessions.append(session)
        if session is sessions[0]:
            raise psycopg.errors.FeatureNotSupported("cached plan must not change result type")
        return read(self, session, *more)

    monkeypatch.setattr(LogReader, "read", reading)
    with outbox.worker():
        with conn.transaction():
            outbox.publish(conn, "T", 1)
        eventually(lambda: got == [1])


def missed(caplog, after: int) -> bool:
    """True if the worker itself, not its membership, has met a missing table, in a line after these many."""
    lines = [record.getMessage() for record in caplog.records if record.name == "partbox.worker"]
    return any("does not exist" in line for line in lines[after:])


def test_a_schema_that_is_gone_for_a_while_ends_no_worker(dsn, conn, caplog):
    outbox, got = Outbox(dsn, lease=2, heartbeat=0.3), []
    outbox.on("*")(lambda event: got.append(event.payload))
    with outbox.worker():
        # Before its first session a missing schema ends a worker, with the remedy.
        owned = "select count(owner) from partbox.partition"
        eventually(lambda: conn.execute(owned).fetchone() == (256,))
        conn.execute("alter schema partbox rename to elsewhere")
        told = [record for record in caplog.records if record.name == "partbox.worker"]
        eventually(lambda: missed(caplog, after=len(told)))
        conn.execute("alter schema elsewhere rename to partbox")
        with conn.transaction():
            outbox.publish(conn, "T", 1)
        eventually(lambda: got == [1])
