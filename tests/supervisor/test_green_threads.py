"""Programs that run an application with green threads, or fork it. Fault: the process is not what a worker believes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import eventually

from partbox import hosts

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}
SHOP = """
from partbox import Outbox

outbox = Outbox()

@outbox.on("*")
def take(event):
    print("got", event.payload, flush=True)
"""
PUBLISH = """
import psycopg
from shop import outbox
with psycopg.connect(outbox.dsn) as conn:
    outbox.publish(conn, "T", 1)
"""
EMBED = f"""
{PUBLISH}
with outbox.worker() as worker:
    assert worker.wait_until_empty(60)
"""
PARTBOX = str(Path(sys.executable).with_name("partbox"))
REMEDY = {
    "gevent": "call monkey.patch_all() before the first import of partbox",
    "eventlet": "deliver by `partbox worker` with a module that does not patch threads",
}


def needs(library: str) -> None:
    """Skip without this library, which is not imported here: eventlet warns of each fork from then on."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


@pytest.fixture
def run(tmp_path: Path, dsn: str) -> Any:
    def run(*command: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        environment = {**os.environ, "PARTBOX_DSN": dsn}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
        )

    return run


def test_a_module_that_eventlet_patches_is_refused_in_one_line_before_a_process_starts(run: Any) -> None:
    needs("eventlet")
    ended = run(PARTBOX, "worker", "shop:outbox", "--processes", "2", shop=f"{PATCHES['eventlet']}\n{SHOP}")
    assert ended.returncode != 0
    (line,) = (each for each in ended.stderr.splitlines() if "partbox" in each)
    assert "eventlet has patched threads" in line
    assert REMEDY["eventlet"] in line
    assert ended.stdout == ""


@pytest.mark.parametrize("patched_first", [False, True])
def test_a_module_that_gevent_patches_is_delivered_by_processes_that_gevent_patches_first(
    run: Any, patched_first: bool
) -> None:
    needs("gevent")
    shop = f"{PATCHES['gevent']}\n{SHOP}"
    assert run(sys.executable, "program.py", shop=shop, program=PUBLISH).returncode == 0
    first = (sys.executable, "-c", f"{PATCHES['gevent']}; from partbox.cli import main; main()")
    command = first if patched_first else (PARTBOX,)
    ended = run(*command, "worker", "shop:outbox", "--processes", "2", "--until-empty")
    assert (ended.returncode, ended.stdout) == (0, "got 1\n"), ended.stderr


@pytest.mark.parametrize("library", PATCHES)
def test_a_worker_in_a_process_that_was_patched_too_late_is_refused_and_publishing_works(
    run: Any, library: str
) -> None:
    needs(library)
    program = f"from partbox import Outbox\n{PATCHES[library]}\n{EMBED}"
    ended = run(sys.executable, "program.py", shop=SHOP, program=program)
    assert ended.returncode == 1
    assert f"PartboxError: {library} has patched threads" in ended.stderr
    assert "got" not in ended.stdout


def test_a_process_that_was_patched_before_it_imports_partbox_delivers(run: Any) -> None:
    needs("gevent")
    ended = run(sys.executable, "program.py", shop=SHOP, program=f"{PATCHES['gevent']}\n{EMBED}")
    assert (ended.returncode, ended.stdout) == (0, "got 1\n"), ended.stderr


def test_a_process_that_alone_is_patched_ends_with_the_reason_and_so_does_its_node(run: Any) -> None:
    needs("gevent")
    patch = "import multiprocess\nif multiprocess.parent_process():\n    " + PATCHES["gevent"]
    ended = run(PARTBOX, "worker", "shop:outbox", "--processes", "1", shop=f"{patch}\n{SHOP}")
    assert ended.returncode == 1
    assert "the worker ends: gevent has patched threads" in ended.stderr


@pytest.mark.parametrize(
    ("original", "arguments", "flags"),
    [
        ("python /bin/partbox worker x:y", "/bin/partbox worker x:y", []),
        ("python -O -W error /bin/partbox worker x:y", "/bin/partbox worker x:y", ["-O", "-W", "error"]),
        ("python -O -c program worker x:y", "-c worker x:y", ["-O"]),
        ("python -sE -m partbox worker x:y", "/lib/partbox.py worker x:y", ["-sE"]),
    ],
)
def test_a_process_that_starts_anew_keeps_the_options_of_python(original: str, arguments: str, flags: Any) -> None:
    assert hosts.list_interpreter_flags(original.split(), arguments.split()) == flags


class Uwsgi:
    """uWSGI with an application that starts a worker when it is imported."""

    APP = (
        SHOP
        + """
import logging
logging.basicConfig()
outbox.worker().start()

def application(environ, start_response):
    start_response("200 OK", [])
    return [b""]
"""
    )

    def __init__(self, folder: Path, dsn: str) -> None:
        (folder / "shop.py").write_text(self.APP)
        self._folder, self._log = folder, folder / "log"
        self._environment = {**os.environ, "PARTBOX_DSN": dsn, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._started: list[subprocess.Popen[bytes]] = []

    def said(self, *options: str) -> str:
        """Return its log up to the moment in which the application is loaded."""
        program = which("uwsgi", path=str(Path(sys.executable).parent))
        command = [str(program), "--http-socket", "127.0.0.1:0", "--module", "shop", *options]
        with self._log.open("w") as log:
            started = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        self._started.append(started)
        eventually(lambda: "WSGI app 0 (mountpoint='') ready" in self._log.read_text())
        self.close()
        return self._log.read_text()

    def close(self) -> None:
        for each in self._started:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        self._started.clear()


@pytest.fixture
def uwsgi(tmp_path: Path, dsn: str) -> Iterator[Uwsgi]:
    pytest.importorskip("pyuwsgi")
    found = Uwsgi(tmp_path, dsn)
    yield found
    found.close()


WARNED = "uWSGI loads the application before it forks, without --enable-threads"


@pytest.mark.parametrize(
    ("options", "warned"),
    [("--master", True), ("--master --enable-threads", False), ("--master --lazy-apps", False), ("", False)],
)
def test_a_worker_before_the_fork_of_uwsgi_warns_of_missing_threads(uwsgi: Uwsgi, options: str, warned: bool) -> None:
    said = uwsgi.said(*options.split())
    assert (WARNED in said) is warned, said
    assert not warned or "--lazy-apps, or run `partbox worker` beside uWSGI" in said


@pytest.mark.parametrize("options", [{}, {"enable-threads": b"false"}, {"threads": None}, {"enable-threads": b"true"}])
def test_options_of_uwsgi_are_read_as_a_file_gives_them(
    dsn: str, monkeypatch: Any, caplog: Any, options: dict[str, Any]
) -> None:
    """A module in the place of the program's own."""
    program = SimpleNamespace(opt=options, numproc=2, worker_id=lambda: 0, masterpid=lambda: 0)
    monkeypatch.setitem(sys.modules, "uwsgi", program)
    hosts.warn_of_uwsgi("default")
    assert (WARNED in caplog.text) is (options.get("enable-threads") != b"true")
