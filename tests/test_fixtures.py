"""What the other tests stand on: their databases, their waiting and the check that nothing is left behind."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from servers import OwnServer, new_database
from waiting import eventually

from partbox.db.embedded import Server

LEAKY = """
import subprocess, sys, threading
import conftest

conftest.PATIENCE = 0.2

def test_a_process():
    subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

def test_a_thread():
    threading.Thread(target=threading.Event().wait, args=(3,)).start()

def test_neither():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    subprocess.run(["true"])
"""


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_has_a_database_of_its_own_with_the_schema(turn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("create table mine ()")
    assert conn.execute("select count(*) from partbox.partition").fetchone() == (256,)


def test_the_empty_database_has_no_schema(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regclass('partbox.record')").fetchone() == (None,)


def test_the_database_is_dropped_under_whoever_still_uses_it(server: Server, template: str) -> None:
    with new_database(server.dsn, template) as dsn:
        conn = psycopg.connect(dsn, autocommit=True)
    with conn, pytest.raises(psycopg.OperationalError):
        conn.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_an_own_server_may_be_killed(own_server: OwnServer) -> None:
    own_server.server.kill()
    own_server.server.start()
    with psycopg.connect(own_server.dsn) as conn:
        assert conn.execute("select count(*) from partbox.partition").fetchone() == (256,)
    own_server.server.kill()


def test_the_server_can_prepare_transactions(dsn: str) -> None:
    assert conninfo_to_dict(dsn)["host"]
    with psycopg.connect(dsn) as conn:
        conn.tpc_begin(conn.xid(1, "global", "branch"))
        conn.execute("insert into partbox.meta (key) values ('two-phase')")
        conn.tpc_prepare()
        conn.tpc_commit()


def test_eventually_returns_the_first_truthy_answer() -> None:
    answers = iter([0, None, "", 7])
    assert eventually(lambda: next(answers), interval=0) == 7


def test_eventually_says_what_it_saw_last() -> None:
    with pytest.raises(AssertionError, match=r"did not happen within 0\.05 s; last answer: 0"):
        eventually(lambda: 0, timeout=0.05)


def test_eventually_asks_again_after_an_assertion_failed() -> None:
    seen: list[int] = []

    def three() -> bool:
        seen.append(1)
        assert len(seen) == 3, f"seen {len(seen)}"
        return True

    assert eventually(three, interval=0)
    seen.clear()
    with pytest.raises(AssertionError, match="seen 1"):
        eventually(lambda: (seen.clear(), three()), timeout=0)


def test_a_test_that_leaves_a_process_or_a_thread_behind_fails(tmp_path: Path) -> None:
    leaky = tmp_path / "test_leaky.py"
    leaky.write_text(LEAKY)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "conftest",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            leaky,
        ],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line.split(" - ")[0] for line in result.stdout.splitlines() if line.startswith("ERROR")]
    assert errors == ["ERROR test_leaky.py::test_a_process", "ERROR test_leaky.py::test_a_thread"], result.stdout
