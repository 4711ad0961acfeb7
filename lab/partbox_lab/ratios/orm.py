"""Print the rates of transactional handlers with an ORM, compared with a hand-written loop with the same ORM.

Run as `python -m partbox_lab.ratios.orm`. The handler reads a row, changes it and inserts another. The loop calls the
same handler for 100 events per commit, reads the events after a cursor of its own and saves the cursor in the same
transaction. It has a savepoint for each event, so that a failing event does not undo the others. `bare` is the loop
without savepoints, which cannot set an event aside. CPU is that of this process, in microseconds per event."""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from partbox import Event, Outbox
from partbox.db.schema.migrate import migrate
from partbox_lab.bench.workspace import SCHEMA, bench_workspace

A_COMMIT = 100  # events
TABLES = """
drop table if exists lab_tally, lab_trace, lab_cursor;
create table lab_tally (aggregate text primary key, total int not null default 0);
create table lab_trace (id bigint generated always as identity primary key, aggregate text, seq int);
create table lab_cursor (id bigint not null);
insert into lab_cursor values (0)
"""


class Base(DeclarativeBase):
    pass


class CountedKey(Base):
    __tablename__ = "lab_tally"
    aggregate: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int]


class CountedEvent(Base):
    __tablename__ = "lab_trace"
    id: Mapped[int] = mapped_column(primary_key=True)
    aggregate: Mapped[str]
    seq: Mapped[int]


def count(event: Any, session: Session) -> None:
    """Read the count of the event's key, increment it, and insert the event."""
    tally = session.get_one(CountedKey, event.aggregate_id)
    tally.total += 1
    session.add(CountedEvent(aggregate=event.aggregate_id, seq=event.payload["seq"]))


async def count_async(event: Any, session: AsyncSession) -> None:
    tally = await session.get_one(CountedKey, event.aggregate_id)
    tally.total += 1
    session.add(CountedEvent(aggregate=event.aggregate_id, seq=event.payload["seq"]))


def count_raw(event: Any, conn: Any) -> None:
    conn.execute("select total from lab_tally where aggregate = %s", [event.aggregate_id]).fetchone()
    conn.execute("update lab_tally set total = total + 1 where aggregate = %s", [event.aggregate_id])
    values = [event.aggregate_id, event.payload["seq"]]
    conn.execute("insert into lab_trace (aggregate, seq) values (%s, %s)", values)


class Read:
    """An event as the loop reads it from the log."""

    def __init__(self, row: Any) -> None:
        self.id, self.aggregate_id, payload = row
        # Django's cursor does not decode JSON, which it leaves to model fields.
        self.payload = json.loads(payload) if isinstance(payload, str) else payload


NEXT = "select id, aggregate_id, payload from {}.record where id > (select id from lab_cursor for update) order by id"
READ = f"{SQL(NEXT).format(Identifier(SCHEMA)).as_string()} limit {A_COMMIT}"
SAVE = "update lab_cursor set id = :id"


class Ratio:
    """A database with a log that each way processes from its beginning."""

    def __init__(self, dsn: str, events: int, aggregates: int) -> None:
        self._dsn, self._events, self._aggregates = dsn, events, aggregates
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._django: Callable[[Any], None]
        self._ended = (0.0, 0.0)  # monotonic and CPU seconds of a worker's last effect

    def close(self) -> None:
        self._conn.close()

    def measure(self, work: Callable[[], None]) -> tuple[float, float]:
        """Create the log anew, run `work`, and return the events per second and the microseconds of CPU per event."""
        self._begin()
        self._first()
        self._ended = (0.0, 0.0)
        work()
        ended, cpu = self._ended if self._ended[0] else (time.monotonic(), time.process_time())
        events = self._events - self._before
        assert self._traced() == self._events, f"{self._traced()} of {self._events}"
        return events / (ended - self._at), (cpu - self._cpu) / events * 1e6

    def _first(self, before: int = 0) -> None:
        """Start the clock again: a worker has started, has claimed its partitions, and has had its first `before`
        effects."""
        self._before, self._at, self._cpu = before, time.monotonic(), time.process_time()

    def worker(self, handler: Any, transactional: Any) -> Callable[[], None]:
        """Return a function that processes the log by a worker with a transactional handler."""

        def work() -> None:
            outbox = Outbox(self._dsn, schema=SCHEMA)
            outbox.on("Counted", transactional=transactional)(handler)
            with outbox.worker(concurrency=1):
                while not (before := self._traced()):
                    time.sleep(0.005)
                self._first(before)
                while self._traced() < self._events:
                    time.sleep(0.1)
                self._ended = time.monotonic(), time.process_time()

        return work

    def loop(self, *, savepoints: bool) -> Callable[[], None]:
        """Return a function that processes the log by a loop with SQLAlchemy."""

        def work() -> None:
            engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(self._dsn))
            rows = [None]
            while rows:
                with Session(engine) as session, session.begin():
                    rows = session.execute(text(READ)).all()
                    for row in map(Read, rows):
                        if savepoints:
                            with session.begin_nested():
                                count(row, session)
                        else:
                            count(row, session)
                    if rows:
                        session.execute(text(SAVE), {"id": rows[-1][0]})
            engine.dispose()

        return work

    def loop_async(self, *, savepoints: bool) -> Callable[[], None]:
        """Return a function that processes the log by a loop with async SQLAlchemy."""

        async def work() -> None:
            async def connect() -> Any:
                return await psycopg.AsyncConnection.connect(self._dsn)

            engine = create_async_engine("postgresql+psycopg://", async_creator=connect)
            rows: Any = [None]
            while rows:
                async with AsyncSession(engine) as session, session.begin():
                    rows = (await session.execute(text(READ))).all()
                    for row in map(Read, rows):
                        if savepoints:
                            async with session.begin_nested():
                                await count_async(row, session)
                        else:
                            await count_async(row, session)
                    if rows:
                        await session.execute(text(SAVE), {"id": rows[-1][0]})
            await engine.dispose()

        return lambda: asyncio.run(work())

    def loop_raw(self, *, savepoints: bool) -> Callable[[], None]:
        """Return a function that processes the log by a loop with psycopg."""

        def work() -> None:
            with psycopg.connect(self._dsn, autocommit=True) as conn:
                rows = [None]
                while rows:
                    with conn.transaction():
                        rows = conn.execute(READ).fetchall()  # type: ignore[arg-type]
                        for row in map(Read, rows):
                            if savepoints:
                                with conn.transaction():
                                    count_raw(row, conn)
                            else:
                                count_raw(row, conn)
                        if rows:
                            conn.execute("update lab_cursor set id = %s", [rows[-1][0]])

        return work

    def loop_django(self, *, savepoints: bool) -> Callable[[], None]:
        """Return a function that processes the log by a loop with Django."""

        def work() -> None:
            from django.db import connection, transaction

            rows: Any = [None]
            while rows:
                with transaction.atomic():
                    with connection.cursor() as cursor:
                        cursor.execute(READ)
                        rows = cursor.fetchall()
                    for row in map(Read, rows):
                        if savepoints:
                            with transaction.atomic():
                                self._django(row)
                        else:
                            self._django(row)
                    if rows:
                        with connection.cursor() as cursor:
                            cursor.execute("update lab_cursor set id = %s", [rows[-1][0]])

        return work

    def django(self) -> Callable[[Any], None]:
        """Configure Django for this database and return the handler that writes by its models."""
        import django
        from django.conf import settings
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(self._dsn)
        names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
        database = {name: str(given.get(part, "")) for name, part in names.items()}
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}})
        django.setup()
        from partbox_lab.ratios.django_models import count_by_django

        self._django = count_by_django
        return count_by_django

    def _traced(self) -> int:
        return int((self._conn.execute("select count(*) from lab_trace").fetchone() or (0,))[0])

    def _begin(self) -> None:
        self._conn.execute(f"drop schema if exists {SCHEMA} cascade")
        migrate(self._dsn, SCHEMA)
        self._conn.execute(TABLES)
        self._conn.execute(
            "insert into lab_tally select 'k' || n from generate_series(0, %s) n", [self._aggregates - 1]
        )
        outbox = Outbox(self._dsn, schema=SCHEMA)
        with self._conn.transaction():
            outbox.publish_many(
                self._conn,
                [
                    Event("Counted", {"seq": n}, aggregate_type="Key", aggregate_id=f"k{n % self._aggregates}")
                    for n in range(self._events)
                ],
            )
        self._conn.execute("vacuum analyze")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="orm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--aggregates", type=int, default=1_000)
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="each way in turn; medians are printed, and the ratio of the best: others disturb those less",
    )
    parser.add_argument("--only", action="append", help="psycopg, SQLAlchemy, Django, async SQLAlchemy; repeatable")
    parser.add_argument("--dsn", help=f"another server than an embedded one; its schema {SCHEMA} is made, and dropped")
    given = parser.parse_args()
    with bench_workspace(given.dsn, 20) as place:
        ratio = Ratio(place.dsn, given.events, given.aggregates)
        ways = {
            "psycopg": (ratio.worker(count_raw, True), ratio.loop_raw),
            "SQLAlchemy": (ratio.worker(count, "sqlalchemy"), ratio.loop),
            "Django": (ratio.worker(ratio.django(), "django"), ratio.loop_django),
            "async SQLAlchemy": (ratio.worker(count_async, "sqlalchemy"), ratio.loop_async),
        }
        try:
            for name, (worker, loop) in ways.items():
                if given.only and name not in given.only:
                    continue
                _compare(
                    ratio,
                    name,
                    {"worker": worker, "loop": loop(savepoints=True), "bare": loop(savepoints=False)},
                    given,
                )
        finally:
            ratio.close()


def _compare(ratio: Ratio, name: str, ways: dict[str, Callable[[], None]], given: Any) -> None:
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(given.rounds):
        for way, work in ways.items():
            found[way].append(ratio.measure(work))
    rates = {way: statistics.median(rate for rate, _ in each) for way, each in found.items()}
    cpu = {way: statistics.median(us for _, us in each) for way, each in found.items()}
    best = {way: max(rate for rate, _ in each) for way, each in found.items()}
    said = "  ".join(f"{way} {rates[way]:,.0f}/s {cpu[way]:,.0f} us" for way in ways)
    ratios = f"{rates['worker'] / rates['loop']:.2f} of the loop, {best['worker'] / best['loop']:.2f} at best"
    print(f"{name:<18}{ratios}  {said}", flush=True)


if __name__ == "__main__":
    main()
