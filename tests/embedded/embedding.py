"""Servers of a test's own, and processes that use them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked_commands import Command, shared

from partbox.embedded.server import Server

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for the server")
UNSAFE = {"fsync": "off"}
USER = """
import signal, sys
from partbox.embedded.address import resolve
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print(resolve(sys.argv[1]), flush=True)
signal.pause()
"""


@contextmanager
def using(dsn: str, folder: Path) -> Iterator[Command]:
    """Another process that uses the server until it is told to end."""
    program = folder / "user.py"
    program.write_text(USER)
    process = shared().start("python", str(program), dsn)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.close()


def answer(process: Command) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def finish(process: Command) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def value(dsn: str, statement: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(statement.encode()).fetchone()
    assert row
    return row[0]


def run(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statements.encode())


def postmaster(server: Server) -> int:
    return int((server.data_folder / "pgdata" / "postmaster.pid").read_text().split()[0])
