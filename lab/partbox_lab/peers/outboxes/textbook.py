"""A textbook outbox: a table, SKIP LOCKED, pages of 100, rows deleted when they are done, and NOTIFY by statement."""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample
from partbox_lab.sql import query


class Textbook(Peer):
    name = "textbook SKIP LOCKED"
    orders: ClassVar[Mapping[Order, float]] = {"none": 0.5}
    settings = "pages of 100, one transaction a page, delete, LISTEN/NOTIFY"

    def install(self, folder: Folder) -> str:
        return f"psycopg {version('psycopg')}"

    def prepare(self, database: Database, run: PeerRun) -> None:
        database.conn.execute(query("peers_textbook_create", ""))

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        values = {"keys": [each.key for each in samples], "payloads": [each.text for each in samples]}
        conn.execute(query("peers_textbook_insert", ""), values)

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [[sys.executable, program("work_textbook.py")] for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query("peers_textbook_waiting", "")).fetchone() is None
