"""Commands in processes of their own, however they are started: closed streams, other encodings, an early Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pytest

from partbox import Outbox

PARTBOX = str(Path(sys.executable).parent / "partbox")
PATIENCE = 120
AWKWARD = "Grüße … 😀"
CLOSED = {"none": "", "all": "<&- >&- 2>&-", "output": ">&-", "input and errors": "<&- 2>&-"}


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PARTBOX, *arguments], env={**os.environ, **environ}, capture_output=True, timeout=PATIENCE, check=False
    )


@pytest.fixture
def dead(dsn: str) -> str:
    """A database with a dead event whose texts not every terminal can show."""
    outbox = Outbox(dsn)
    outbox.on(AWKWARD, max_attempts=1)(_fail)
    with psycopg.connect(dsn) as conn:
        outbox.publish(conn, AWKWARD, 1, aggregate_type="T", aggregate_id=AWKWARD)
    with outbox.worker() as worker:
        assert worker.wait_until_empty(PATIENCE)
    return dsn


def _fail(event: Any) -> None:
    raise KeyError(AWKWARD)


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_output_encoding_lacks_are_escaped(dead: str, encoding: str) -> None:
    environ = {"PARTBOX_DSN": dead, "PYTHONIOENCODING": encoding, "COLUMNS": "200"}
    shown = run("dead", "list", **environ)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert rb"\ud83d\ude00" in shown.stdout
    assert ("Grüße".encode(encoding) if "ascii" not in encoding else rb"Gr\u00fc\u00dfe") in shown.stdout
    printed = run("dead", "list", "--json", **environ)
    (record,) = json.loads(printed.stdout.decode(encoding))
    assert record["aggregate_id"] == AWKWARD


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["--help", "config", "doctor", "nonsense …"])
def test_every_form_of_output_is_shown_where_it_is_not_utf_8(dead: str, command: str) -> None:
    done = run(*command.split(), PARTBOX_DSN=dead, PYTHONIOENCODING="ascii")
    assert b"Traceback" not in done.stderr
    assert b"Error" not in done.stderr
    assert done.stdout or done.returncode == 2
    assert (done.stdout + done.stderr).isascii()


@pytest.mark.parametrize(
    "closed", ["all", *(pytest.param(each, marks=pytest.mark.thorough) for each in CLOSED if each != "all")]
)
def test_a_command_works_with_closed_streams(dsn: str, closed: str, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    command = f"{PARTBOX} status {CLOSED[closed]} && touch {reached}"
    subprocess.run(["sh", "-c", command], env={**os.environ, "PARTBOX_DSN": dsn}, timeout=PATIENCE, check=True)
    assert reached.exists()


def test_a_command_of_a_framework_works_with_a_closed_output() -> None:
    """`manage.py partbox_worker >&-`: the framework's process has no standard output."""
    code = "from partbox.cli import main; main(['--version'])"
    command = f'exec {sys.executable} -c "{code}" >&-'
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


WRITING = [("--version", ""), ("--version", "1"), ("status", "1"), ("dead list --json", "")]
"""Commands, and whether Python buffers their output."""


def to(output: Any, dsn: str, command: str, **environ: str) -> tuple[int, str]:
    """The exit code and the errors of a command with this standard output."""
    environment = {**os.environ, "PARTBOX_DSN": dsn, **environ}
    run = [PARTBOX, *command.split()]
    done = subprocess.run(run, env=environment, stdout=output, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(("command", "unbuffered"), WRITING)
def test_an_output_that_cannot_be_written_is_reported_in_one_line(dsn: str, command: str, unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        said = "partbox: the standard output cannot be written: No space left on device\n"
        assert to(full, dsn, command, PYTHONUNBUFFERED=unbuffered) == (1, said)


@pytest.mark.parametrize(("command", "unbuffered"), WRITING)
def test_a_reader_that_has_gone_ends_a_command_silently(dsn: str, command: str, unbuffered: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as gone:
        assert to(gone, dsn, command, PYTHONUNBUFFERED=unbuffered) == (1, "")


INTERRUPTED = """
import os, signal, sys

class Finder:
    def __init__(self, wanted):
        self.wanted = wanted

    def find_spec(self, name, path=None, target=None):
        if name == self.wanted:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder(sys.argv.pop(1)))
from partbox.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "psycopg", "pydantic", "partbox.settings", "partbox.cli.commands.status"])
def test_ctrl_c_during_an_import_ends_a_command_silently(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, "status"], capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_during_the_import_of_an_application_prints_no_trace(tmp_path: Path, dsn: str) -> None:
    """Python drops an error that meets a callback of its own, and prints a trace: the signal comes again then."""
    code = "import os, signal, weakref\nclass A: pass\na = A()\n"
    code += "b = weakref.ref(a, lambda _: os.kill(os.getpid(), signal.SIGINT))\ndel a\nwhile True: pass\n"
    (tmp_path / "slow_app.py").write_text(code)
    done = run("worker", "slow_app:outbox", PARTBOX_DSN=dsn, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr.decode().strip()) == (130, "")


LOADED = r"""
import json, sys
from partbox.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print("\n" + json.dumps([*sys.modules]))
"""

LIBRARIES = ("multiprocess", "dill", "psutil", "prometheus_client", "psycopg_pool", "starlette", "uvicorn", "asyncpg")
ROOMS = (
    "worker",
    "demo",
    "dashboard",
    "testing",
    "sinks",
    "supervisor.supervisor",
    "cli.commands.top",
    "db.inspect.cached_overview",
    "stats",
)


def loaded(*arguments: str, **environ: str) -> set[str]:
    command = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, check=True, timeout=PATIENCE)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_version_imports_neither_a_command_nor_a_library() -> None:
    found = loaded("--version")
    assert "partbox.cli.shell.version" in found
    assert (
        found & {"typer", "rich", "psycopg", "pydantic", *LIBRARIES, "partbox.cli.program", "partbox.outbox"} == set()
    )


def test_a_command_imports_no_other_command_and_nothing_that_delivers(dsn: str) -> None:
    found = loaded("status", PARTBOX_DSN=dsn)
    assert "partbox.cli.commands.status" in found
    heavy = {*LIBRARIES, "rich.live", *(f"partbox.{room}" for room in ROOMS)}
    if int(version("rich").partition(".")[0]) >= 15:  # older ones load it themselves
        heavy.add("rich._emoji_codes")
    assert found & heavy == set()
    assert not [name for name in found if name.startswith("partbox_lab")]
    assert [name for name in found if name.startswith("partbox.cli.commands.")] == ["partbox.cli.commands.status"]
