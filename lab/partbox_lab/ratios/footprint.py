"""Print the memory of each process and the connections of each node, idle and over a backlog, and WAL and storage per
event.

Each node is the installed command on an embedded PostgreSQL. Memory is the greatest that was seen, as resident set
(RSS) and as proportional set (PSS), which divides shared pages among the processes. The backlog exists before the node
starts."""

import argparse
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import psycopg

from partbox import Event, Outbox
from partbox.text.wording import format_count
from partbox_lab.bench.workspace import SCHEMA, bench_workspace
from partbox_lab.sql import query

Conn = psycopg.Connection[Any]
SHOP = """
from partbox import Outbox

outbox = Outbox()


@outbox.on("OrderPlaced", transactional=%s)
def note(event%s): ...
"""
# The name of each kind of node, whether it is scraped all the time, and whether its handlers are transactional.
KINDS = [("plain", False, False), ("scraped at --http", True, False), ("transactional", False, True)]
MIB = 2**20
CONNECTIONS = 100


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="footprint", description=__doc__, formatter_class=form)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--payload", type=int, default=200, help="bytes of each")
    given = parser.parse_args()
    with bench_workspace(None, CONNECTIONS) as place, psycopg.connect(place.dsn, autocommit=True) as conn:
        # Autovacuum would write WAL of its own.
        conn.execute("alter system set autovacuum = off")
        conn.execute("select pg_reload_conf()")
        _events(conn, place.dsn, given)
        for kind, scraped, transactional in KINDS:
            for processes in (1, 4):
                print(f"{kind}, {format_count(processes, 'process')}", flush=True)
                _node(conn, place.dsn, place.folder, given, scraped, transactional, processes)


def _events(conn: Conn, dsn: str, given: argparse.Namespace) -> None:
    """Print the server's cost of an event: published alone, published in bulk, and delivered."""
    few, outbox = given.events // 10, Outbox(dsn, schema=SCHEMA)
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
    """A block that prints the server's writes per event."""

    def __init__(self, conn: Conn, count: int, what: str) -> None:
        self._conn, self._count, self._what = conn, count, what

    def __enter__(self) -> None:
        self._before = self._sizes()

    def __exit__(self, *_: object) -> None:
        self._conn.execute(query("bench_flush", SCHEMA), {})
        wal, stored, dead = (now - then for now, then in zip(self._sizes(), self._before, strict=True))
        per = [f"{each / self._count:,.3g}" for each in (wal, stored, dead)]
        print(f"{self._what}: WAL {per[0]} B, stored {per[1]} B, dead rows {per[2]} an event", flush=True)

    def _sizes(self) -> tuple[float, ...]:
        (found,) = self._conn.execute(query("ratios_sizes", SCHEMA), {}).fetchall()
        return tuple(found)


def _made(count: int, first: int, size: int) -> list[Event]:
    """Return events with payloads that hardly compress."""
    texts = [os.urandom((size - 11) // 2).hex() for _ in range(count)]
    return [
        Event("OrderPlaced", {"text": text}, aggregate_type="Order", aggregate_id=str((first + n) % 5_000))
        for n, text in enumerate(texts)
    ]


def _publish(conn: Conn, outbox: Outbox, given: argparse.Namespace) -> None:
    for first in range(0, given.events, 1_000):
        with conn.transaction():
            outbox.publish_many(conn, _made(1_000, first, given.payload))


def _node(
    conn: Conn,
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
    env = os.environ | {"PARTBOX_DSN": dsn, "PARTBOX_SCHEMA": SCHEMA, "PATH": path, "PARTBOX_LOG_LEVEL": "warning"}
    _idle(conn, subprocess.Popen(command, cwd=folder, env=env), http, processes)
    _publish(conn, Outbox(dsn, schema=SCHEMA), given)
    node = subprocess.Popen(command, cwd=folder, env=env)
    try:
        _watch("over a backlog", conn, node.pid, http, lambda: _backlog(conn) == 0)
    finally:
        node.terminate()
        node.wait()


def _idle(conn: Conn, node: "subprocess.Popen[bytes]", http: str, processes: int) -> None:
    try:
        _until(lambda: conn.execute(query("ratios_owners", SCHEMA), {}).fetchall() == [(processes,)])
        until = time.monotonic() + 5
        _watch("idle", conn, node.pid, http, lambda: time.monotonic() > until)
    finally:
        node.terminate()
        node.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _backlog(conn: psycopg.Connection) -> int:
    ((found,),) = conn.execute(query("ratios_backlog", SCHEMA), {}).fetchall()
    return int(found)


def _watch(state: str, conn: Conn, pid: int, http: str, done: Callable[[], bool]) -> None:
    """Print the most memory and connections that are seen until `done` returns True."""
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
        seen = conn.execute(query("ratios_sessions", SCHEMA), {}).fetchall()
        connections |= Counter(dict(seen))
        time.sleep(0.2)
    said = ", ".join(f"{name} {rss // MIB} MiB (PSS {pss // MIB})" for name, (rss, pss) in sorted(most.items()))
    each = ", ".join(f"{name.removeprefix('partbox ')} {number}" for name, number in sorted(connections.items()))
    print(f"  {state}: {said}; connections {connections.total()} ({each})", flush=True)


def _memory(pid: int) -> dict[str, tuple[int, int]]:
    """Return RSS and PSS in bytes of the supervisor, of its largest worker process, and of Python's resource
    tracker."""
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
