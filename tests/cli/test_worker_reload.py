"""`partbox worker --reload`: starts anew when the application's code changes, and waits for handlers to be written."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.cli.shell import reload
from partbox.cli.shell.reload import find_change, find_roots, read_stamps

SHOP = """
from partbox import Outbox
import parts.more

outbox = Outbox({dsn!r}{keywords})


@outbox.on("OrderPlaced")
def placed(event):
    print("placed", flush=True)
"""
PAID = """

@outbox.on("OrderPaid")
def paid(event):
    print("paid", parts.more.WORD, flush=True)
"""


class Reloaded:
    """A worker that reloads, its output in a file."""

    def __init__(self, forks: Any, dsn: str, folder: Path, keywords: str = "") -> None:
        self.dsn = dsn
        self.code = folder / "shop.py"
        self.more = folder / "parts" / "more.py"
        self.more.parent.mkdir()
        self.more.write_text('WORD = "once"\n')
        self.code.write_text(SHOP.format(dsn=dsn, keywords=keywords))
        self.log = folder / "log"
        words = ("partbox", "worker", "shop:outbox", "--processes", "1", "--reload")
        self.process = forks.start_into(self.log, *words, cwd=folder, env=dict(os.environ))

    def publish(self, event_type: str) -> None:
        outbox = Outbox(self.dsn)
        with outbox.transaction() as tx:
            outbox.publish(tx, event_type, {})

    def says(self, *texts: str) -> None:
        def said() -> bool:
            log = self.log.read_text()
            assert self.process.poll() is None, log
            missing = [text for text in texts if text not in log]
            assert not missing, f"{missing} not in\n{log}"
            return True

        eventually(said)

    def inner(self) -> psutil.Process:
        """The process that runs the command, not a spare one of these tests."""
        return eventually(lambda: [each for each in psutil.Process(self.process.pid).children() if _is_inner(each)])[0]


def _is_inner(process: psutil.Process) -> bool:
    return any("partbox.cli" in word for word in process.cmdline())


@pytest.fixture
def reloaded(forks, dsn, tmp_path: Path):
    running: list[Reloaded] = []

    def start(keywords: str = "") -> Reloaded:
        running.append(Reloaded(forks, dsn, tmp_path, keywords))
        return running[-1]

    yield start
    for each in running:
        each.process.send_signal(signal.SIGTERM)
        each.process.wait()


@pytest.mark.thorough
def test_the_worker_restarts_when_a_handler_is_written_and_waits_until_a_syntax_error_is_fixed(reloaded, dsn):
    worker = reloaded()
    worker.publish("OrderPaid")
    worker.says("no handler takes 'OrderPaid' of aggregate type", "on_unroutable is 'retry'")
    with psycopg.connect(dsn, autocommit=True) as conn:
        eventually(lambda: conn.execute("select state from partbox.parked").fetchall() == [("deferred",)])

    worker.more.write_text("def broken(:\n")
    worker.says("parts/more.py has changed", "SyntaxError", "the worker restarts when a file changes")
    worker.code.write_text(worker.code.read_text() + PAID)
    worker.more.write_text('WORD = "again"\n')
    worker.says("paid again\n")

    inner = worker.inner()
    os.killpg(worker.process.pid, signal.SIGINT)  # as a terminal does
    assert worker.process.wait() == 0
    assert not inner.is_running()
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.thorough
def test_the_on_unroutable_setting_of_the_application_is_respected(reloaded, dsn):
    worker = reloaded(', on_unroutable="dead"')
    worker.publish("OrderPaid")
    worker.says("on_unroutable is 'dead'")
    with psycopg.connect(dsn, autocommit=True) as conn:
        eventually(lambda: conn.execute("select state from partbox.parked").fetchall() == [("dead",)])


def test_a_worker_that_cannot_start_is_ended_by_one_signal(reloaded):
    worker = reloaded(", lease=0")
    worker.says("setting lease = 0", "the worker restarts when a file changes; Ctrl-C ends it")
    os.killpg(worker.process.pid, signal.SIGINT)
    assert worker.process.wait() == 0


@pytest.mark.thorough
def test_a_worker_ends_when_the_process_that_looks_at_the_files_was_killed(reloaded):
    worker = reloaded()
    worker.publish("OrderPlaced")
    worker.says("placed\n")
    inner = worker.inner()
    worker.process.kill()
    assert worker.process.wait() == -signal.SIGKILL
    eventually(lambda: not inner.is_running())


@pytest.mark.thorough
def test_a_closed_terminal_ends_the_worker_in_order(reloaded):
    """The kernel tells the process that looks at the files alone: the other one has a process group of its own."""
    worker = reloaded()
    worker.publish("OrderPlaced")
    worker.says("placed\n")
    inner = worker.inner()
    worker.process.send_signal(signal.SIGHUP)
    assert worker.process.wait() == 0
    assert not inner.is_running()
    assert "has stopped in subscription" in worker.log.read_text()


def test_with_until_empty_the_reloader_ends_when_everything_is_delivered(forks, dsn, tmp_path: Path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "more.py").touch()
    (tmp_path / "shop.py").write_text(SHOP.format(dsn=dsn, keywords=""))
    words = ("partbox", "worker", "shop:outbox", "--processes", "1", "--reload", "--until-empty")
    worker = forks.start(*words, cwd=tmp_path)
    out, err = worker.communicate()
    assert (worker.wait(), out) == (0, ""), err


def test_only_files_of_the_application_are_watched(tmp_path: Path):
    for name in ("shop.py", "deep/below/it.py", "partbox.toml", "notes.txt", ".git/hook.py", "node_modules/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    for name in ("env/pyvenv.cfg", "env/lib/site.py", "__pycache__/shop.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    before = read_stamps([tmp_path])
    assert {os.path.relpath(each, tmp_path) for each in before} == {"shop.py", "deep/below/it.py", "partbox.toml"}
    assert find_change(before, read_stamps([tmp_path])) is None

    (tmp_path / "shop.py").write_text("22")
    assert find_change(before, now := read_stamps([tmp_path])) == os.path.relpath(tmp_path / "shop.py")
    (tmp_path / "new.py").touch()
    assert find_change(now, now := read_stamps([tmp_path])) == os.path.relpath(tmp_path / "new.py")
    (tmp_path / "new.py").unlink()
    assert find_change(now, now := read_stamps([tmp_path])) == os.path.relpath(tmp_path / "new.py")
    other = tmp_path / "other.py"
    other.write_text("33")
    os.replace(other, tmp_path / "shop.py")  # as editors save
    assert find_change(now, read_stamps([tmp_path])) == os.path.relpath(tmp_path / "shop.py")


def test_the_watched_folders_include_the_application_wherever_it_lies(monkeypatch, tmp_path: Path):
    elsewhere, installed, inside = tmp_path / "elsewhere", tmp_path / "lib" / "site-packages", tmp_path / "here" / "in"
    for folder in (elsewhere, installed, inside):
        folder.mkdir(parents=True)
    (elsewhere / "far_shop.py").touch()
    monkeypatch.chdir(inside.parent)
    monkeypatch.setattr("sys.path", [os.path.dirname(os.__file__), str(installed), str(inside), str(elsewhere)])
    assert {*find_roots("far_shop.outbox")} == {inside.parent, elsewhere}
    monkeypatch.setattr("sys.path", [])
    assert {*find_roots("no_such_module")} == {inside.parent}
    monkeypatch.chdir("/")
    assert {*find_roots("no_such_module")} == set()


def test_a_stop_signal_between_two_workers_ends_the_reloader(monkeypatch, tmp_path: Path):
    """The signal comes while the files are looked at before the next start."""
    outer = reload._Reloader(("true",), [tmp_path])

    def looked(_: object) -> dict[str, Any]:
        outer._forward_signal(signal.SIGTERM, None)
        return {}

    monkeypatch.setattr(reload, "read_stamps", looked)
    monkeypatch.setattr(reload.signal, "signal", lambda *_: None)
    monkeypatch.setattr(reload.subprocess, "Popen", None)
    assert outer.run_reloading() == 0
