"""`partbox chaos`, run as people run it: what it finds, what it refuses, how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
from forked_commands import Command, forks
from waiting import eventually

from partbox.cli import main
from partbox_lab.chaos import clock
from partbox_lab.chaos.faults import FAULTS

__all__ = ["forks"]

COMMAND = [str(Path(sys.executable).with_name("partbox")), "chaos"]
PATIENCE = 300.0
SEEDS = range(1, 11)  # of the full size
TAME = [name for name, fault in FAULTS.items() if fault.needs is None]


@pytest.fixture
def make_open_folder(folder):
    """A folder that root's server can pass through; everything a run makes goes there."""
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@pytest.fixture
def chaos(make_open_folder, forks):
    """Starts a run, of the installed command if asked to; afterwards none of its processes may be left, nor a file."""
    started = []

    def start(*arguments: str, installed: bool = False, **environment: str) -> subprocess.Popen | Command:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        if not installed:
            variables = kept | {"TMPDIR": str(make_open_folder)} | environment
            started.append(forks.start("partbox", "chaos", *arguments, env=variables))
            return started[-1]
        started.append(
            subprocess.Popen(
                [*COMMAND, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env=kept | {"TMPDIR": str(make_open_folder)} | environment,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:  # the test has failed: now at once
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
        process.communicate()
    eventually(lambda: not left(make_open_folder))
    assert list(make_open_folder.iterdir()) == []


def left(folder: Path) -> list[psutil.Process]:
    """The processes that work in the folder: nodes, and PostgreSQL."""

    def works_there(process: psutil.Process) -> bool:
        try:
            return str(folder) in process.cwd() or str(folder) in " ".join(process.cmdline())
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if works_there(process)]


def ended(process: subprocess.Popen | Command) -> dict:
    """The report of a run, which must find nothing."""
    out, said = process.communicate(timeout=PATIENCE)
    report = json.loads(out) if out else {}
    assert (process.returncode, report.get("violations")) == (0, dict.fromkeys(report["violations"], 0)), out + said
    return report


@pytest.fixture
def refused(capsys):
    """Runs one that is refused, in this process; what it says."""

    def refused(code: int, *arguments: str) -> str:
        with pytest.raises(SystemExit) as exit:
            main(["chaos", *arguments])
        out, said = capsys.readouterr()
        assert (exit.value.code, out) == (code, ""), said
        return words(said)

    return refused


def words(said: str) -> str:
    """The text of the error, without the frame around it."""
    return " ".join(said.replace("│", " ").split())


def schemas(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [name for (name,) in conn.execute("select nspname from pg_namespace where nspname like 'partbox%'")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds", "processes", "seed", "published", "kinds"),
    [
        ("5", "1", "13", 100, 2),
        *(pytest.param("60", "4", str(seed), 1_000, 12, marks=pytest.mark.soak) for seed in SEEDS),
    ],
)
def test_every_promise_is_kept_whatever_the_fault(chaos, seconds, processes, seed, published, kinds):
    """With `kinds` different faults at least."""
    run = ("--seconds", seconds, "--seed", seed, "--nodes", "2", "--processes", processes, "--json")
    report = ended(chaos("--embedded", *run, installed=True))
    assert report["published"] > published
    assert len(report["faults"]) >= kinds
    # Where libfaketime is not installed, who runs the tests is not root, or PostgreSQL is older than 17.
    assert set(report["skipped"]) <= {"clock", "disk-full", "wal-full", "notify-full"}


@pytest.mark.soak
def test_a_chaos_run_on_a_users_database_keeps_every_promise(chaos, empty_dsn):
    faults = ",".join(TAME)
    size = ("--seconds", "10", "--seed", "7", "--processes", "2")
    report = ended(chaos("--dsn", empty_dsn, *size, "--faults", faults, "--json"))
    assert report["published"] > 100
    assert sum(report["faults"].values()) >= 1
    assert report["skipped"] == {}
    assert schemas(empty_dsn) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("seconds", "processes"), [(4, 1), pytest.param(12, 2, marks=pytest.mark.soak)])
def test_a_jump_of_the_wall_clock_changes_nothing_but_wall_clock_times(chaos, make_open_folder, seconds, processes):
    if lacking := clock.lacking(make_open_folder):
        pytest.skip(lacking)
    for left_over in list(make_open_folder.iterdir()):  # the probe's
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    size = ("--seconds", str(seconds), "--seed", "3", "--nodes", "1", "--processes", str(processes))
    report = ended(chaos("--embedded", *size, "--faults", "clock", "--keep", "--json"))
    assert report["repeats"] == {}
    kept = Path(report["kept"])
    calls = [json.loads(line) for path in kept.glob("journal/*") for line in path.read_text().splitlines()]
    offsets = [call["wall"] - call["start"] for call in calls if "wall" in call]
    assert max(offsets) - min(offsets) > 60
    shutil.rmtree(kept)


def test_ctrl_c_ends_all_started_processes_and_the_run_is_still_judged(chaos, empty_dsn):
    size = ("--seconds", "600", "--nodes", "1", "--processes", "1")
    process = chaos("--dsn", empty_dsn, *size, "--faults", "kill-process", "--json")
    for line in process.stderr:
        if "kill-process" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    report = ended(process)
    assert report["interrupted_by_user"]
    assert report["seconds"] < 500
    assert schemas(empty_dsn) == []


def test_a_fault_that_cannot_be_injected_is_left_out_with_the_reason(chaos, empty_dsn):
    process = chaos("--dsn", empty_dsn, "--seconds", "1", "--nodes", "1", "--processes", "1", "--faults", "crash,fail")
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + said
    assert "no crash: the server is not ours to stop: use --embedded" in said
    assert "every promise was kept" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give either --dsn DSN or --embedded"),
        (["--embedded", "--dsn", "dbname=x"], "give either --dsn DSN or --embedded"),
        (["--embedded", "--faults", "kill-nod"], "did you mean kill-node?"),
        (["--embedded", "--schema", "pg_mine"], "schema"),
        (["--embedded", "--seconds", "0"], "--seconds"),
        (["--embedded", "--nodes", "0"], "--nodes"),
        (["--embedded", "--processes", "0"], "--processes"),
        (["--embedded", "--seed", "-1"], "--seed"),
    ],
    ids=["no database", "two databases", "unknown fault", "bad schema", "no time", "no nodes", "no processes", "seed"],
)
def test_wrong_usage_is_refused_with_exit_code_2(refused, arguments, reason):
    assert reason in refused(2, *arguments)


def test_chaos_leaves_a_schema_alone_that_it_did_not_make(refused, dsn):
    said = refused(1, "--dsn", dsn, "--schema", "partbox")
    assert "schema 'partbox' exists already and `partbox chaos` did not make it: name another one by --schema" in said
    assert schemas(dsn) == ["partbox"]


def test_an_unreachable_server_is_a_one_line_error_of_chaos(refused):
    said = refused(1, "--dsn", "host=127.0.0.1 port=1 dbname=x password=geheim")
    assert said.startswith("partbox: cannot use the database")
    assert "geheim" not in said
