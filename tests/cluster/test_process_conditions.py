"""A worker delivers whatever a process was started with, and whatever an application's code changes in it."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked_commands import shared
from waiting import eventually

from partbox import Event, Outbox

PARTBOX = Path(sys.executable).parent / "partbox"
PATIENCE = 120
EVENTS = 30

APPLICATION = """
import os
from pathlib import Path

from partbox import Fixed, Outbox

outbox = Outbox()
LEDGER = Path({ledger!r})


def note(event):
    with LEDGER.open("a") as file:
        file.write(f"{event.event_type} {event.payload}\\n")


@outbox.on("T", retry=Fixed(0))
def plain(event):
    if event.payload == 7 and event.attempt == 1:
        raise KeyError(event.payload)
    note(event)


@outbox.on("A")
async def asynchronous(event):
    note(event)


@outbox.on("C", transactional=True)
def transactional(event, conn):
    conn.execute("select 1")
    note(event)

"""

CHANGES = {
    "psycopg converts lists to jsonb": """
import psycopg
from psycopg.types.json import JsonbDumper
psycopg.adapters.register_dumper(list, JsonbDumper)
psycopg.adapters.register_dumper(dict, JsonbDumper)
""",
    "sockets time out at once": "import socket; socket.setdefaulttimeout(0.001)",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "decimals trap everything": """
import decimal
decimal.DefaultContext.prec, decimal.getcontext().prec = 1, 1
for each in (decimal.Inexact, decimal.Rounded, decimal.Subnormal):
    decimal.DefaultContext.traps[each] = decimal.getcontext().traps[each] = True
""",
    "stacks are short": "import sys; sys.setrecursionlimit(150)",
    "garbage is not collected": "import gc; gc.disable(); gc.freeze()",
    "garbage is collected always": "import gc; gc.set_threshold(1)",
    "all loggers are disabled": """
import logging.config
logging.config.dictConfig({"version": 1})
logging.raiseExceptions = True
logging.captureWarnings(True)
""",
    "the root logger fails": """
import logging

class Failing(logging.Handler):
    def emit(self, record):
        raise RuntimeError(record)

logging.getLogger().handlers[:] = [Failing()]
""",
    "the folder is left": "import os, tempfile; os.chdir(tempfile.gettempdir())",
    "files are for nobody": "import os; os.umask(0o777)",
    "the environment is empty": "os.environ.clear()",
    "the zone is far away": "import time; os.environ['TZ'] = 'Pacific/Kiritimati'; time.tzset()",
    "a locale is set": """
import locale
from contextlib import suppress
with suppress(locale.Error):
    locale.setlocale(locale.LC_ALL, "")
""",
    "standard streams are closed": "import os; [os.close(number) for number in range(3)]",
    "standard streams are gone": "import sys; sys.stdin = sys.stdout = sys.stderr = None",
    "signals are blocked": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
""",
    "children are nobody's": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "random numbers repeat": "import random; random.seed(0); random.random = lambda: 0.5",
    "processes are forked": "import multiprocessing, multiprocess; multiprocess.set_start_method('fork', force=True)",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    made = tmp_path / "ledger"
    made.touch()
    return made


@pytest.fixture
def published(dsn: str) -> list[str]:
    """Events of each kind of handler, as the ledger has them in the end."""
    outbox = Outbox(dsn)
    with psycopg.connect(dsn) as conn:
        outbox.publish_many(conn, [Event(kind, n) for n in range(EVENTS) for kind in "TAC"])
    return sorted(f"{kind} {n}" for n in range(EVENTS) for kind in "TAC")


@pytest.fixture
def start(dsn: str, tmp_path: Path, ledger: Path) -> Callable[..., dict[str, Any]]:
    """What a process needs to deliver with such an application."""

    def given(change: str = "", environ: Mapping[str, str] = {}) -> dict[str, Any]:
        code, folder = tmp_path / "code", tmp_path / "folder"
        code.mkdir()
        folder.mkdir()
        (code / "conditions_app.py").write_text(APPLICATION.replace("{ledger!r}", repr(str(ledger))) + change)
        own = {"PARTBOX_DSN": dsn, "PYTHONPATH": str(code), "PARTBOX_LEASE": "5s"}
        return {"cwd": folder, "env": {**os.environ, **own, **environ}}

    return given


WORKER = ("worker", "conditions_app:outbox", "--processes", "1", "--until-empty")


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES)
def test_a_worker_command_delivers_whatever_the_application_changes_in_its_process(
    start: Callable[..., dict[str, Any]], published: list[str], ledger: Path, change: str
) -> None:
    log = ledger.with_name("log")
    process = shared().start_into(log, "partbox", *WORKER, **start(CHANGES[change]), spare=0)
    assert process.wait(PATIENCE) == 0, log.read_text()
    assert sorted(ledger.read_text().splitlines()) == published
    assert "died" not in log.read_text()


STARTED = {
    "with closed streams": "exec partbox <&- >&- 2>&-",
    "with a closed output": "exec partbox >&-",
    "in a folder that is gone": 'gone="$LEFT" && cd "$gone" && rmdir "$gone" && exec partbox',
    "with children that are nobody's": "trap '' CHLD; exec partbox",
    "deaf to a closed terminal": "trap '' HUP; exec partbox",
    "with files for nobody": "umask 777; exec partbox",
    "without a home": "unset HOME PATH LANG; exec partbox",
    "optimised": "export PYTHONOPTIMIZE=2; exec partbox",
    "in a locale without letters": "export LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0; exec partbox",
}


@pytest.mark.thorough
@pytest.mark.parametrize("how", STARTED)
def test_a_worker_command_delivers_however_it_is_started(
    start: Callable[..., dict[str, Any]], published: list[str], ledger: Path, how: str
) -> None:
    run_started(how, (str(PARTBOX), *WORKER), start())
    assert sorted(ledger.read_text().splitlines()) == published


def run_started(how: str, command: Sequence[str], given: dict[str, Any]) -> None:
    shell = STARTED[how].replace("exec partbox", f"exec {shlex.join(command)}")
    given["env"]["LEFT"] = str(given["cwd"])
    done = subprocess.run(["/bin/sh", "-c", shell], **given, timeout=PATIENCE, check=False, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


EMBEDDED = """
from conditions_app import outbox

with outbox.worker() as worker:
    worker.wait_until_empty(120)
"""
RUN = """
from conditions_app import outbox

if __name__ == "__main__":
    raise SystemExit(outbox.run(processes=1, until_empty=True))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES)
def test_an_embedded_worker_delivers_whatever_the_application_changes_in_its_process(
    start: Callable[..., dict[str, Any]], published: list[str], ledger: Path, change: str
) -> None:
    log, program, given = ledger.with_name("log"), ledger.with_name("program.py"), start(CHANGES[change])
    program.write_text(f"import sys; sys.path.insert(0, {given['env']['PYTHONPATH']!r})\n{EMBEDDED}")
    process = shared().start_into(log, "python", str(program), **given, spare=0)
    assert process.wait(PATIENCE) == 0, log.read_text()
    assert sorted(ledger.read_text().splitlines()) == published


PROGRAMS = {"embedded": EMBEDDED, "run": RUN}
APPLICATIONS = [
    ("embedded", "in a folder that is gone"),
    ("embedded", "in a locale without letters"),
    ("run", "with closed streams"),
    pytest.param("embedded", "with closed streams", marks=pytest.mark.soak),
    pytest.param("run", "in a folder that is gone", marks=pytest.mark.soak),
    pytest.param("run", "in a locale without letters", marks=pytest.mark.soak),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("program", "how"), APPLICATIONS)
def test_an_application_that_runs_workers_delivers_however_it_is_started(
    start: Callable[..., dict[str, Any]], published: list[str], ledger: Path, how: str, program: str
) -> None:
    file = ledger.with_name("program.py")
    file.write_text(PROGRAMS[program])
    run_started(how, (sys.executable, str(file)), start())
    assert sorted(ledger.read_text().splitlines()) == published


def test_signals_that_were_blocked_before_the_start_are_heard(
    start: Callable[..., dict[str, Any]], published: list[str], ledger: Path
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    try:
        node = subprocess.Popen([PARTBOX, *WORKER[:-1]], **start(), stderr=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    eventually(lambda: sorted(ledger.read_text().splitlines()) == published, PATIENCE, 0.05)
    node.terminate()
    assert node.wait(PATIENCE) == 0


GONE = """
import os, sys, tempfile
from partbox.supervisor.worker_handle import _leave_deleted_folder

gone = tempfile.mkdtemp(dir=sys.argv[1])
os.chdir(gone)
_leave_deleted_folder()
print(os.getcwd() == gone)
os.rmdir(gone)
_leave_deleted_folder()
print(os.listdir(os.getcwd()), os.path.dirname(os.getcwd()) == sys.argv[1])
"""


def test_a_folder_that_is_deleted_later_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    """And never by the root of all files, where an application's relative paths would mean something."""
    command, environ = [sys.executable, "-c", GONE, str(tmp_path)], {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.split("\n")[:2] == ["True", "[] True"]
