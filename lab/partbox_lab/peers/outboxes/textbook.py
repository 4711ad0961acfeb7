"""The outbox of textbooks: a table, SKIP LOCKED, pages of 100, rows deleted when they are done; NOTIFY by statement."""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample

SCHEMA = """
create table outbox (id bigint generated always as identity primary key, type text not null, key text not null,
                     payload json not null, created_at timestamptz not null default now());
create function ring() returns trigger language plpgsql as $$ begin notify outbox; return null; end $$;
create trigger ring after insert on outbox for each statement execute function ring();
"""
INSERT = """insert into outbox (type, key, payload)
            select 'OrderPlaced', key, payload from unnest(%s::text[], %s::json[]) as new (key, payload)"""


class Textbook(Peer):
    name = "textbook SKIP LOCKED"
    orders: ClassVar[Mapping[Order, float]] = {"none": 0.5}
    settings = "pages of 100, one transaction a page, delete, LISTEN/NOTIFY"

    def install(self, folder: Folder) -> str:
        return f"psycopg {version('psycopg')}"

    def prepare(self, database: Database, run: PeerRun) -> None:
        database.conn.execute(SCHEMA)

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        conn.execute(INSERT, ([each.key for each in samples], [each.text for each in samples]))

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [[sys.executable, program("work_textbook.py")] for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute("select from outbox limit 1").fetchone() is None
