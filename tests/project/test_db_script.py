"""The database that `scripts/db` starts to play with."""

import signal
import subprocess
import sys
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[2]


def test_the_database_of_the_playground_script_has_the_schema_and_ends_with_the_process(folder: Path) -> None:
    folder.mkdir(parents=True)
    command = [sys.executable, ROOT / "scripts" / "db.py", folder]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        dsn = process.stdout.readline().strip()
        with psycopg.connect(dsn) as conn:
            assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not list(folder.glob(".partbox/db/**/postmaster.pid"))
