"""Prints memory of each process and connections of each node, idle and over a backlog, and WAL and storage of an event.

Each node is the installed command on an embedded PostgreSQL. Memory is the resident set (RSS), and the proportional one
(PSS), in which pages that processes share are divided among them; the greatest that was seen. A backlog is there before
the node starts.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import psycopg

from partbox import Event, Outbox
from partbox.db.schema.migrate import migrate
from partbox.embedded.server import Server
from partbox.text.wording import counted

SHOP = """
from partbox import Outbox

outbox = Outbox()


@outbox.on("OrderPlaced", transactional=%s)
def note(event%s): ...
"""
KINDS = [("plain", False, False), ("scraped at --http", True, False), ("transactional", False, True)]
"""What a node is called, whether it is scraped all the time, whether its handlers are transactional."""
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--payload", type=int, default=200, help="bytes of each")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partbox-footprint-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "data", options={"max_wal_size": "4GB", "autovacuum": "off"})
        try:
            dsn = server.start()
            migrate(dsn)
            with psycopg.connect(dsn, autocommit=True) as conn:
                _events(conn, dsn, given)
                for kind, scraped, transactional in KINDS:
                    for processes in (1, 4):
                        print(f"{kind}, {counted(processes, 'process')}", flush=True)
                        _node(conn, dsn, Path(folder), given, scraped, transactional, processes)
        finally:
            server.stop()


def _events(conn: psycopg.Connection, dsn: str, given: argparse.Namespace) -> None:
    """What an event costs the server: published alone, published in bulk, delivered."""
    few, outbox = given.events // 10, Outbox(dsn)
    with _Counted(conn, few, "published, each in its own transaction"):
        for number in range(few):
            with conn.transaction():
                outbox.publish(conn, _made(1, number, given.payload)[0])
    with _Counted(conn, given.events, "published by publish_many, 1,000 in a transaction"):
        _publish(conn, outbox, given)
    outbox.register(lambda event: None, "OrderPlaced")
    with _Counted(conn, given.events + few, "delivered"):
        outbox.drain(timeout=600)


class _Counted:
    def __init__(self, conn: psycopg.Connection, count: int, what: str) -> None:
        self._conn, self._count, self._what = conn, count, what

    def __enter__(self) -> None:
        self._before = self._sizes()

    def __exit__(self, *_: object) -> None:
        self._conn.execute("select pg_stat_force_next_flush()")
        wal, stored, dead = (now - then for now, then in zip(self._sizes(), self._before, strict=True))
        per = [f"{each / self._count:,.3g}" for each in (wal, stored, dead)]
        print(f"{self._what}: WAL {per[0]} B, stored {per[1]} B, dead rows {per[2]} an event", flush=True)

    def _sizes(self) -> tuple[float, ...]:
        found = self._conn.execute(
            """select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8,
                      (select sum(pg_total_relation_size(c.oid)) from pg_class c
                       where relnamespace = 'partbox'::regnamespace and relkind = 'r')::float8,
                      (select sum(n_tup_upd + n_tup_del) from pg_stat_all_tables
                       where schemaname = 'partbox')::float8"""
        ).fetchone()
        assert found is not None
        return tuple(found)


def _made(count: int, first: int, size: int) -> list[Event]:
    """Their payloads cannot be compressed much."""
    texts = [os.urandom((size - 11) // 2).hex() for _ in range(count)]
    return [
        Event("OrderPlaced", {"text": text}, aggregate_type="Order", aggregate_id=str((first + n) % 5_000))
        for n, text in enumerate(texts)
    ]


def _publish(conn: psycopg.Connection, outbox: Outbox, given: argparse.Namespace) -> None:
    for first in range(0, given.events, 1_000):
        with conn.transaction():
            outbox.publish_many(conn, _made(1_000, first, given.payload))


def _node(
    conn: psycopg.Connection,
    dsn: str,
    folder: Path,
    given: argparse.Namespace,
    scraped: bool,
    transactional: bool,
    processes: int,
) -> None:
    (folder / "shop.py").write_text(SHOP % (transactional, ", connection" if transactional else ""))
    http = f"127.0.0.1:{_free_port()}" if scraped else "off"
    command = ["partbox", "worker", "shop:outbox", "--processes", str(processes), "--http", http]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PARTBOX_DSN": dsn, "PATH": path, "PARTBOX_LOG_LEVEL": "warning"}
    _idle(conn, subprocess.Popen(command, cwd=folder, env=env), http, processes)
    _publish(conn, Outbox(dsn), given)
    node = subprocess.Popen(command, cwd=folder, env=env)
    try:
        _watch("over a backlog", conn, node.pid, http, lambda: _backlog(conn) == 0)
    finally:
        node.terminate()
        node.wait()


def _idle(conn: psycopg.Connection, node: "subprocess.Popen[bytes]", http: str, processes: int) -> None:
    try:
        _until(lambda: conn.execute("select count(distinct owner) from partbox.partition").fetchone() == (processes,))
        until = time.monotonic() + 5
        _watch("idle", conn, node.pid, http, lambda: time.monotonic() > until)
    finally:
        node.terminate()
        node.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _backlog(conn: psycopg.Connection) -> int:
    (found,) = conn.execute("select count from partbox.backlog").fetchone() or (0,)
    return int(found)


def _watch(state: str, conn: psycopg.Connection, pid: int, http: str, done: Callable[[], bool]) -> None:
    """Print the most memory and connections that are seen until it is done."""
    most: dict[str, tuple[int, int]] = {}
    connections: Counter[str] = Counter()
    last = False
    while not last:
        last = done()
        if http != "off":
            for page in ("metrics", "healthz", "readyz"):
                with suppress(OSError), urlopen(f"http://{http}/{page}", timeout=30) as answer:
                    answer.read()
        for name, memory in _memory(pid).items():
            most[name] = max(most.get(name, (0, 0)), memory)
        seen = conn.execute(
            "select application_name, count(*) from pg_stat_activity where application_name like 'partbox%' group by 1"
        ).fetchall()
        connections |= Counter(dict(seen))
        time.sleep(0.2)
    said = ", ".join(f"{name} {rss // MIB} MiB (PSS {pss // MIB})" for name, (rss, pss) in sorted(most.items()))
    each = ", ".join(f"{name.removeprefix('partbox ')} {number}" for name, number in sorted(connections.items()))
    print(f"  {state}: {said}; connections {connections.total()} ({each})", flush=True)


def _memory(pid: int) -> dict[str, tuple[int, int]]:
    """Of the supervisor, of its largest worker process, and of Python's resource tracker."""
    found: dict[str, tuple[int, int]] = {}
    parent = psutil.Process(pid)
    for each in (parent, *parent.children(recursive=True)):
        try:
            line, memory = " ".join(each.cmdline()), each.memory_full_info()
        except psutil.NoSuchProcess:
            continue
        name = "supervisor" if each == parent else "tracker" if "resource_tracker" in line else "worker"
        found[name] = max(found.get(name, (0, 0)), (memory.rss, memory.pss))
    return found


def _until(check: Callable[[], bool]) -> None:
    while not check():
        time.sleep(0.1)


if __name__ == "__main__":
    main()
