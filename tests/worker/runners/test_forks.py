"""Handlers, and applications with a worker, that fork: the child is no worker, and its parent does not notice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from event_loops import LIBRARIES
from waiting import eventually

APP = Path(__file__).with_name("forking_app.py")
STATUS = {
    "returns": 0,
    "exits": 3,
    "fails": 1,
    "asks": 0,
    "execs": 7,
    "async": 0,
    "awaits": 1,
    "lists": 0,
    "effects": 0,
    "multiprocessing": 0,
    "terminated": -15,
    "subprocess": 5,
    "neighbour": 0,
}
NUMBERS = 6


def alive(group: int) -> bool:
    """True while there is any process of this group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Told:
    """The output and the log of the application."""

    def __init__(self, dsn: str, file: Path, mode: str, library: str = "asyncio") -> None:
        command = [sys.executable, APP, dsn, file, mode]
        environment = {**os.environ, "PARTBOX_EVENT_LOOP": library}
        with subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                self.log = process.communicate(timeout=120)[1]
                eventually(lambda: not alive(process.pid))
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, self.log
        told = [line.split() for line in file.read_text().splitlines()]
        lines = [line for line in told if line[0] in ("ran", "ended")]
        self.ran = Counter((kind, int(number)) for what, kind, number in lines if what == "ran")
        self.order = {
            kind: [int(number) for what, of, number in lines if (what, of) == ("ran", kind)] for kind in STATUS
        }
        self.ended = {kind: int(status) for what, kind, status in lines if what == "ended"}
        self.others = [" ".join(line) for line in told if line not in lines]


def undisturbed(told: Told, dsn: str) -> None:
    """Everything ran once and in order, and no connection was lost; nothing is left of any process."""
    assert set(told.ran.values()) == {1}, [each for each, times in told.ran.items() if times > 1]
    assert told.order == {kind: list(range(NUMBERS if kind != "neighbour" else 1)) for kind in STATUS}, told.log
    assert "connection was lost" not in told.log
    assert "worker ends" not in told.log
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
        assert conn.execute("select count(*) from partbox.instance").fetchone() == (0,)


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("mode", ["embedded", "application", "supervised"])
def test_a_fork_in_a_handler_repeats_nothing_and_leaves_nothing_behind(
    dsn: str, tmp_path: Path, mode: str, library: str
) -> None:
    told = Told(dsn, tmp_path / "told", mode, library)
    undisturbed(told, dsn)
    assert told.ended.pop("child", 0) == 0
    assert told.ended == STATUS
    assert told.others == ["target multiprocessing", *(["restarts 0"] if mode == "supervised" else [])]
    assert "in the child" in told.log


def test_an_application_that_forks_beside_its_worker_has_a_child_without_one(dsn: str, tmp_path: Path) -> None:
    told = Told(dsn, tmp_path / "told", "prefork")
    undisturbed(told, dsn)
    assert told.ended.pop("child") == 0
    assert "child stopped" in told.others
