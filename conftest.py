"""A real PostgreSQL for every test: one server and one database per test process, as migrations left it each time."""

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import server_versions
from lock_check import _checked_lock, _nothing_without_the_lock  # noqa: F401 (fixtures for every test)
from servers import (
    KEPT,
    TEMPLATE,
    OwnServer,
    binaries,
    cloned,
    free_path,
    new_database,
    new_folder,
    new_server,
    originals,
)
from waiting import eventually

from partbox.embedded import processes
from partbox.embedded.server import Server
from partbox.interceptors.wrap import log_rate_limiter as flood_of_interceptors
from partbox.observe.logs import log_event as telling
from partbox.outbox import Outbox
from partbox.testing.drain import Drainer
from partbox.testing.outcomes import Drained
from partbox.testing.servers import TestServer
from partbox.testing.sessions import Sessions

pytest_plugins = ["full_notification_queue", "pytester", "run_size", "slowest_tests"]

PATIENCE = 120.0
"""Seconds that what a test started may take to end after it."""
SELDOM = 5_000, 20, 100
"""Thresholds of Python's collector: with its own it takes a sixth of the CPU of a test process."""
MEMORY = Path("/dev/shm")
ROOM = 8 * 2**30
"""Free bytes of memory from which on it holds the files of a run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server-only",
        action="store_true",
        help="only the tests that say something about the server; the others say the same whatever its version is",
    )
    parser.addoption("--soak", action="store_true", help="only the full-size forms, which take minutes each")
    parser.addoption("--brief", action="store_true", help="without the tests that are marked as thorough")


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files, the servers' data above all, in memory: on a disc, cloning takes most of a test's time."""
    config.addinivalue_line("markers", "soak: full size, of minutes; left out unless it is named or --soak is given")
    config.addinivalue_line("markers", "thorough: costs more than it tells at every change; left out with --brief")
    config.addinivalue_line("markers", "every_version(reason): runs on every PostgreSQL, though its folder does not")
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None
    if KEPT not in os.environ:
        os.environ[KEPT] = str(free_path())
        config.add_cleanup(lambda: shutil.rmtree(os.environ[KEPT], ignore_errors=True))
    originals()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a run under `nohup` ignores it, and so would all that tests start
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # nor does what a script starts with `&` hear Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> list[str]:
    version = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=True)
    which = "only those that say something about the server" if config.getoption("--server-only") else "all"
    which += ", at full size" if config.getoption("--soak") else ""
    return [
        f"server: {version.stdout.strip()} in {binaries()}",
        f"tests: {which}; their files are in {tempfile.gettempdir()}",
    ]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test for this run are not even read."""
    return True if config.getoption("--server-only") and server_versions.none_in(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: Python's collector is to look at it neither now nor ever again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*SELDOM)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    soak, server_only = config.getoption("--soak"), config.getoption("--server-only")

    def wanted(item: pytest.Item) -> bool:
        left_out = config.getoption("--brief") and item.get_closest_marker("thorough")
        full_size = item.get_closest_marker("soak") is not None
        return full_size == soak and not left_out and (not server_only or server_versions.every(item))

    named = any("::" in argument for argument in config.args)
    if named and not any(map(wanted, items)):
        return  # it is just one of the others that is asked for
    chosen = {item: wanted(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not chosen[item]])
    items[:] = [item for item in items if chosen[item]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Logs travel between test processes as UTF-8, which those of hostile tests may not be, and only of failures."""
    report = yield
    kept = [] if report.passed else report.sections
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in kept]
    return report


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of this test process. Leave it running: a test that kills one takes `own_server`."""
    # A database of many tests would be analysed at some time or other, and its plans change with that.
    with new_server({"autovacuum_naptime": "1d"}) as server:
        yield server


@pytest.fixture(scope="session")
def template() -> str:
    """The name of a database with the schema, to be cloned."""
    return TEMPLATE


@pytest.fixture(scope="session")
def partbox_server(server: Server, template: str) -> TestServer:
    """The server of the databases of the kit, from which `partbox_dsn` comes."""
    return TestServer(server.dsn, template)


@pytest.fixture
def dsn(partbox_dsn: str) -> str:
    """The DSN of a database as migrations left it, for this test alone."""
    return partbox_dsn


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Without asyncio's reports of forgotten tasks: they come when a task is collected, in whichever test that is."""
    caplog.handler.addFilter(_not_of_asyncio)
    yield caplog
    caplog.handler.removeFilter(_not_of_asyncio)


def _not_of_asyncio(record: logging.LogRecord) -> bool:
    return record.name != "asyncio"


@pytest.fixture
def fresh_dsn(server: Server, template: str) -> Iterator[str]:
    """The DSN of another such database, which no test has used before and none will after."""
    with new_database(server.dsn, template) as dsn:
        yield dsn


@pytest.fixture
def empty_dsn(server: Server) -> Iterator[str]:
    """The DSN of a fresh database with nothing in it."""
    with new_database(server.dsn, "template1") as dsn:
        yield dsn


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to the test's database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def drain(partbox_sessions: Sessions) -> Callable[..., Drained]:
    """Deliver what is due in an outbox, event by event: the parts of a worker that ship, without its threads.

    It costs a fifth of the CPU of a worker, and waits for nothing.
    """

    def drain(outbox: Outbox, subscription: str = "default") -> Drained:
        with closing(Drainer(outbox, outbox.dsn, partbox_sessions)) as drainer:
            return drainer.drain(subscription)

    return drain


@pytest.fixture
def collect() -> Callable[[], int]:
    """Collects the garbage that this test makes: to look at all that a long run has kept takes a second of CPU."""
    gc.freeze()
    return gc.collect


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    with new_server() as server:
        yield OwnServer(server, cloned(server.dsn, "partbox"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A path for an embedded server's data, which does not exist yet."""
    with new_folder() as folder:
        yield folder


@pytest.fixture(autouse=True)
def _no_server_unasked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that starts the server without a fixture of SERVERS: `--server-only` would leave it out."""
    # Not by the fixture `monkeypatch`: a test's fake clock would then outlive the test, up to `_nothing_left_behind`.
    with pytest.MonkeyPatch.context() as patch:
        if not server_versions.uses_server(request.node):
            patch.setenv(
                "PARTBOX_TEST_BINARIES", f"/this-test-takes-none-of/{'/'.join(sorted(server_versions.SERVERS))}"
            )
        yield


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    """A line that one test made partbox log often is not held back in the next."""
    flood_of_interceptors.clear()
    telling.log_rate_limiter.clear()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaves child processes or non-daemon threads behind."""
    before = _offspring()
    yield

    def all_gone() -> bool:
        assert not (left := _offspring() - before), f"left behind: {sorted(left)}"
        return True

    eventually(all_gone, timeout=PATIENCE)


def _offspring() -> set[str]:
    threads = {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate() if not thread.daemon}
    return threads | {f"process {child}" for child in _children() if not _ends_with_us(child)}


def _children() -> list[int]:
    """The kernel's own lists, where it keeps them: to look at every process of the machine takes long."""
    try:
        lists = [task / "children" for task in Path("/proc/self/task").iterdir()]
        return [int(pid) for each in lists for pid in each.read_text().split()]
    except OSError:  # a thread has ended meanwhile, or there are no such lists
        return [child.pid for child in psutil.Process().children()]


def _ends_with_us(child: int) -> bool:
    """True for the resource tracker, which spawning starts, the process that commands are forked from, and a broker for
    all tests."""
    command = " ".join(processes.read_arguments(child))
    return "resource_tracker" in command or "import serve" in command or _is_broker(child)


def _is_broker(child: int) -> bool:
    return child in getattr(sys.modules.get("brokers"), "RUNNING", ())
