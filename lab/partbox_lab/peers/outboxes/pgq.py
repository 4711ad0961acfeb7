"""PgQ: batches between two ticks, read and finished by SQL; as many queues as there are consumers, by key.

If the server does not have the extension, its files come out of Debian's package without being installed: its SQL is
run with the paths of its two libraries put in. That takes a server on this machine.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import psycopg

from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample

INSERT = """select count(pgq.insert_event(queue, 'OrderPlaced', data, key, null, null, null))
              from unnest(%s::text[], %s::text[], %s::text[]) as new (queue, data, key)"""
TICKER = {"ticker_max_lag": "0", "ticker_idle_period": "100 ms"}
"""The second bounds the wait of an event that was being committed during a tick."""
BETWEEN_TICKS = 10_000  # events, while many are published
BEHIND = "select coalesce(sum(pending_events), 0) from pgq.get_consumer_info()"


class PgQ(Peer):
    name = "PgQ"
    orders: ClassVar[Mapping[Order, float]] = {"queue": 1.0}
    settings = (
        "a tick and a look every 10 ms, ticker_max_lag 0, ticker_idle_period 100 ms; 2 processes: 2 queues, by key"
    )

    def __init__(self) -> None:
        self._script = ""
        self._untold = 0

    def install(self, folder: Folder) -> str:
        if "pgq" in folder.extensions:
            self._script = "create extension pgq"
            return f"PgQ of the server, psycopg {version('psycopg')}"
        files = folder.debian(f"postgresql-{folder.major}-pgq3=3.5*")
        (script,) = files.glob(f"usr/share/postgresql/{folder.major}/contrib/pgq.sql")
        (libraries,) = files.glob(f"usr/lib/postgresql/{folder.major}/lib")
        self._script = _located(script, libraries)
        return f"PgQ 3.5, psycopg {version('psycopg')}"

    def prepare(self, database: Database, run: PeerRun) -> None:
        database.conn.execute(self._script)
        for queue in _queues(run):
            database.conn.execute("select pgq.create_queue(%s)", (queue,))
            for setting, value in TICKER.items():
                database.conn.execute("select pgq.set_queue_config(%s, %s, %s)", (queue, setting, value))
            database.conn.execute("select pgq.register_consumer(%s, 'bench')", (queue,))

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        queues = _queues(run)
        to = [queues[crc32(each.key.encode()) % len(queues)] for each in samples]
        conn.execute(INSERT, (to, [each.text for each in samples], [each.key for each in samples]))
        self._untold += len(samples)
        if len(samples) > 1 and self._untold >= BETWEEN_TICKS:
            conn.execute("select pgq.ticker()")
            self._untold = 0

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [[sys.executable, program("work_pgq.py")] for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(BEHIND).fetchone() == (0,)


def _queues(run: PeerRun) -> list[str]:
    return [f"events{number}" for number in range(run.processes)]


def _located(script: Path, libraries: Path) -> str:
    return script.read_text(encoding="utf-8").replace("$libdir/", f"{libraries}/")
