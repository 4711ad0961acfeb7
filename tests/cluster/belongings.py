"""All that a cluster may accumulate while it works: memory of processes, catalogs of the database, segments."""

import csv
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from psycopg import Connection

MEGABYTE = 1e6

CATALOGS = """
select sum(pg_total_relation_size(c.oid)) / 1e6, (select count(*) from pg_class), (select count(*) from pg_attribute),
       (select pg_total_relation_size('pg_statistic') / 1e6),
       (select sum(s.n_dead_tup) from pg_stat_sys_tables s where s.schemaname = 'pg_catalog')
  from pg_class c where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'r'
"""
DEAD = "select sum(n_dead_tup) from pg_stat_user_tables where relname not like 'record%'"
SEGMENTS = "select inhrelid::regclass::text from pg_inherits where inhparent = 'partbox.record'::regclass"
SESSIONS = """
select pid from pg_stat_activity
 where backend_type = 'client backend' and datname = current_database() and application_name like 'partbox%%'
"""


@dataclass(frozen=True, slots=True)
class Belongings:
    """A look: seconds since the first, and what there was. Sizes in MB; `backend` is the private memory of the largest
    server process of the workers, `hot_dead` the dead rows of all tables but the log's."""

    at: float
    worker: float
    supervisor: float
    backend: float
    catalogs: float
    relations: int
    attributes: int
    statistics: float
    catalog_dead: int
    hot_dead: int
    segments: int


MEMORY = {"worker": 1.25} | dict.fromkeys(("supervisor", "backend"), 1.1)
LIMITS = MEMORY | dict.fromkeys(("catalogs", "relations", "attributes", "statistics", "segments"), 1.25)
"""The factor by which the greatest of the last third may exceed that of the third before: what grows for good grows
between the two by a half and more; what is left is chance.

The RSS of `worker` is as large as the most that was ever in memory at once, and the holes between: it rises by a step
whenever a backlog comes in a way that takes more than any before. A leak is seen much earlier `in_use`.
"""


class Watch:
    """Looks at a node of one worker process; keeps what it saw, in `file` too if that is given."""

    def __init__(self, conn: Connection[Any], supervisor: int, file: str | None) -> None:
        self._conn = conn
        self._supervisor = psutil.Process(supervisor)
        self._began = time.monotonic()
        self._file = Path(file) if file else None
        self.seen: list[Belongings] = []
        self.made: set[str] = set()
        if self._file:
            self._append([field.name for field in fields(Belongings)])

    def look(self) -> Belongings:
        """Look once."""
        catalogs, relations, attributes, statistics, dead = self._one(CATALOGS)
        segments = {name for (name,) in self._conn.execute(SEGMENTS)}
        self.made |= segments
        pids = [pid for (pid,) in self._conn.execute(SESSIONS)]
        seen = Belongings(
            time.monotonic() - self._began,
            _largest(self._supervisor.children(), _resident),
            _resident(self._supervisor),
            _largest(map(_process, pids), _private),
            float(catalogs),
            relations,
            attributes,
            float(statistics),
            int(dead),
            int(self._one(DEAD)[0]),
            len(segments),
        )
        self.seen.append(seen)
        if self._file:
            self._append(asdict(seen).values())
        return seen

    def growth(self) -> dict[str, tuple[float, float]]:
        """What grew beyond its limit: its greatest in the second and in the last third of the time."""
        third = self.seen[-1].at / 3
        grown = {}
        for name, limit in LIMITS.items():
            middle, last = (self._greatest(name, third * n, third * (n + 1)) for n in (1, 2))
            if last > middle * limit + 1:
                grown[name] = (middle, last)
        return grown

    def _greatest(self, name: str, begin: float, end: float) -> float:
        return max(getattr(each, name) for each in self.seen if begin <= each.at <= end)

    def _one(self, statement: str) -> Sequence[Any]:
        row = self._conn.execute(statement).fetchone()
        assert row is not None
        return row

    def _append(self, values: Iterable[object]) -> None:
        assert self._file is not None
        with self._file.open("a") as file:
            csv.writer(file).writerow(round(each, 3) if isinstance(each, float) else each for each in values)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _resident(process: psutil.Process) -> float:
    return float(process.memory_info().rss / MEGABYTE)


def _private(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss / MEGABYTE)


def _largest(processes: Iterable[psutil.Process | None], size: Callable[[psutil.Process], float]) -> float:
    """The size of the largest one, without those that end meanwhile."""

    def measured(process: psutil.Process | None) -> float:
        try:
            return size(process) if process else 0.0
        except psutil.NoSuchProcess:
            return 0.0

    return max(map(measured, processes), default=0.0)
