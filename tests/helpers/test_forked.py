"""Commands that are forked instead of spawned are what a shell would have started."""

import json
import os
import signal
from pathlib import Path

import pytest
from forked_commands import Command, shared
from waiting import eventually

from partbox_lab.processes import group


def start(folder: Path, *arguments: str, **environment: str) -> Command:
    return shared().start_into(folder / "log", "partbox", *arguments, cwd=folder, env=environment)


@pytest.fixture
def blocking(tmp_path: Path) -> str:
    """An application whose import tells its folder, and never ends."""
    (tmp_path / "blocking.py").write_text("import os, time\nprint(os.getcwd(), flush=True)\ntime.sleep(600)\n")
    return "blocking:outbox"


def test_a_forked_command_runs_with_its_own_environment_and_has_an_exit_code(tmp_path: Path) -> None:
    command = start(tmp_path, "config", "--json", PARTBOX_LEASE="7")
    assert command.wait(120) == command.returncode == 0
    settings = json.loads((tmp_path / "log").read_text())
    assert (settings["lease"]["value"], settings["lease"]["origin"]) == ("7s", "PARTBOX_LEASE")
    assert group(command.pid) == []


def test_a_wrong_forked_command_ends_as_it_does_in_a_shell(tmp_path: Path) -> None:
    assert start(tmp_path, "nonsense").wait(120) == 2
    assert "there is no command" in (tmp_path / "log").read_text()


ENDING = """
import atexit, threading
from partbox import Outbox

outbox = Outbox()
atexit.register(print, "at the end")
threading.Thread(target=lambda: (threading.main_thread().join(), print("no other thread"))).start()
"""


def test_a_forked_command_waits_for_threads_runs_exit_handlers_and_flushes_its_output(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = shared().start("partbox", "handlers", "ending:outbox", cwd=tmp_path, env=environment)
    out, err = command.communicate()
    assert (command.returncode, out.splitlines()[-2:], err) == (0, ["no other thread", "at the end"], "")


TELLING = """
import os

def tell():
    print(os.environ.get("GIVEN"), os.environ.get("SET"), os.environ.get("GONE"), flush=True)
"""
SPAWNING = """
import os
from multiprocess import get_context
from telling import tell

if __name__ == "__main__":
    os.environ["SET"] = "later"
    del os.environ["GONE"]
    process = get_context("spawn").Process(target=tell)
    process.start()
    process.join()
"""


def test_a_process_spawned_by_a_forked_command_has_its_current_environment(tmp_path: Path) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    (tmp_path / "program.py").write_text(SPAWNING)
    environment = {**os.environ, "GIVEN": "born", "GONE": "x"}
    command = shared().start("python", str(tmp_path / "program.py"), cwd=tmp_path, env=environment)
    assert command.communicate() == ("born later None\n", "")


def test_a_forked_command_has_its_own_folder_and_session_and_can_be_killed(tmp_path: Path, blocking: str) -> None:
    command = start(tmp_path, "handlers", blocking, PYTHONPATH=str(tmp_path))
    assert eventually(lambda: (tmp_path / "log").read_text()) == f"{tmp_path}\n"
    assert command.poll() is None
    assert os.getsid(command.pid) == command.pid
    command.send_signal(signal.SIGKILL)
    assert command.wait(120) == -signal.SIGKILL
    command.send_signal(signal.SIGKILL)  # nobody
    eventually(lambda: not group(command.pid))
