"""Other systems lack some of Linux's calls: a Mac runs workers without them, and Windows publishes and tests."""

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from source_trees import parsed

from partbox.testing.servers import TestServer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CODE = (ROOT / "partbox", ROOT / "lab" / "partbox_lab" / "bench", ROOT / "lab" / "partbox_lab" / "chaos")
PARTBOX = Path(sys.executable).parent / "partbox"
TWINS = {
    "partbox/platform.py": "the monotonic clock",
    "partbox/cgroup.py": "os.cpu_count, where there are no cgroups",
    "partbox/cli/shell/arguments.py": "a command line that keeps its passwords",
    "lab/partbox_lab/chaos/clock.py": "no calendar that jumps, where there is no libfaketime",
    "lab/partbox_lab/bench/machine.py": "the processor's name that Python knows",
}
"""The files that name what Linux alone has, and what is done without it."""

SHOP = """
from partbox import Outbox

outbox = Outbox()

@outbox.on("OrderPlaced")
def handle(event):
    print("got", event.payload["total"], flush=True)
"""
PUBLISH = """
import psycopg
from shop import outbox

with psycopg.connect(outbox.settings.dsn) as conn:
    for total in range(3):
        outbox.publish(conn, "OrderPlaced", {"total": total}, aggregate_type="Order", aggregate_id="7")
"""
COMMANDS = """
from partbox.cli import main

for command in (["worker", "shop:outbox"], ["relay", "--to", "stdout:"], ["demo"]):
    try:
        main(command)
    except SystemExit as end:
        print(end.code)
"""
ONE = ("--processes", "1", "--until-empty")
EMBED = """
from shop import outbox

with outbox.worker():
    pass
"""
TEST = """
import shop

def test_an_order(partbox_kit, partbox_conn):
    with partbox_conn.transaction():
        shop.outbox.publish(partbox_conn, "OrderPlaced", {"total": 7}, aggregate_type="Order", aggregate_id="7")
    partbox_kit.drain().assert_done()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with an application, and a test of it."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\npartbox_outbox = shop:outbox\n")
    return tmp_path


def run_on(platform: str, *command: str | Path, folder: Path = ROOT, **environment: str) -> CompletedProcess[str]:
    """Run a program of this Python where only what `platform` has is there."""
    program = [sys.executable, *command]
    env = surroundings(platform, folder) | environment
    return subprocess.run(program, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def surroundings(platform: str, folder: Path) -> dict[str, str]:
    """The environment in which a Python has only what `platform` has."""
    return os.environ | {"PARTBOX_TEST_PLATFORM": platform, "PYTHONPATH": f"{HERE}:{folder}"}


def linux_alone() -> set[str]:
    """The names that are taken away from a Python of another Unix."""
    found = ast.parse((HERE / "sitecustomize.py").read_text())
    (text,) = (
        ast.literal_eval(each.value)
        for each in found.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "LINUX_ALONE"
    )
    return set(text.split())


def names(tree: ast.Module) -> Iterator[str]:
    """The attributes, imported names and short texts of a file; /proc for a path there."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(text)):
                yield "/proc" if text.startswith("/proc/") else text
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if text.startswith("/proc/"):
                yield "/proc"


def test_linux_only_names_are_used_only_where_there_is_a_portable_counterpart() -> None:
    wanted = linux_alone() | {"/proc"}
    trees = parsed(file for each in CODE for file in each.rglob("*.py"))
    found = {str(file.relative_to(ROOT)) for file, tree in trees.items() if wanted & set(names(tree))}
    assert found == set(TWINS)


@pytest.mark.parametrize("platform", ["darwin", pytest.param("win32", marks=pytest.mark.thorough)])
def test_the_help_of_the_commands_works_on_every_system(platform: str) -> None:
    done = run_on(platform, PARTBOX, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "worker" in done.stdout


def test_on_a_mac_worker_processes_deliver(shop: Path, dsn: str) -> None:
    run_on("darwin", "-c", PUBLISH, folder=shop, PARTBOX_DSN=dsn).check_returncode()
    done = run_on("darwin", PARTBOX, "worker", "shop:outbox", *ONE, folder=shop, PARTBOX_DSN=dsn)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("got")] == ["got 0", "got 1", "got 2"]


@pytest.mark.thorough
def test_on_a_mac_the_demo_kills_processes_and_loses_nothing() -> None:
    command = [sys.executable, PARTBOX, "demo", "--rate", "50", "--processes", "2", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=surroundings("darwin", ROOT), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as demo:
        try:
            assert demo.stderr is not None
            assert any("killed process" in line for line in demo.stderr)
            os.killpg(demo.pid, signal.SIGINT)
            told, errors = demo.communicate(timeout=300)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(demo.pid, signal.SIGKILL)
    assert demo.returncode == 0, errors
    summary = json.loads(told)
    assert (summary["lost"], summary["kills"] > 0) == (0, True)


@pytest.mark.soak
def test_on_a_mac_the_tests_of_the_supervisor_pass() -> None:
    # gevent asks this machine's socket module for names that the Mac of these tests does not have.
    left_out = "--ignore=tests/supervisor/test_green_threads.py"
    command = "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/supervisor", left_out
    done = run_on("darwin", *command, PARTBOX_TEST_BINARIES="")
    assert done.returncode == 0, done.stdout


def test_publishing_and_testing_work_on_windows(shop: Path, dsn: str, partbox_server: TestServer) -> None:
    run_on("win32", "-c", PUBLISH, folder=shop, PARTBOX_DSN=dsn).check_returncode()
    options = ("--capture=sys", "-p", "no:cacheprovider", "--partbox-dsn", partbox_server.dsn)
    tested = run_on("win32", "-m", "pytest", "-q", *options, folder=shop)
    assert (tested.returncode, "1 passed" in tested.stdout) == (0, True), tested.stdout + tested.stderr


def test_worker_commands_are_refused_on_windows_in_one_line(shop: Path, dsn: str) -> None:
    done = run_on("win32", "-c", COMMANDS, folder=shop, PARTBOX_DSN=dsn)
    assert done.stdout == "1\n1\n1\n"
    assert done.stderr == "partbox: workers run on Linux and macOS: use WSL or a container\n" * 3


def test_an_embedded_worker_is_refused_on_windows(shop: Path, dsn: str) -> None:
    done = run_on("win32", "-c", EMBED, folder=shop, PARTBOX_DSN=dsn)
    assert "PartboxError: workers run on Linux and macOS: use WSL or a container" in done.stderr


def test_the_embedded_server_is_refused_on_windows_in_one_line(shop: Path) -> None:
    done = run_on("win32", PARTBOX, "init", folder=shop, PARTBOX_DSN="embedded:./db")
    assert done.stderr == "partbox: the embedded PostgreSQL runs on Linux and macOS: give the DSN of a server\n"
