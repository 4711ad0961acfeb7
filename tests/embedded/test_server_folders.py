"""The folders of a server: what is refused, who can enter them, and the system user that runs it for root."""

import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from embedding import UNSAFE, as_root, postmaster, value
from servers import initialise

from partbox.embedded import programs, server_user
from partbox.embedded.server import Server
from partbox.errors import SettingsError


def test_a_long_path_gets_a_short_socket(start: Callable[..., Server], folder: Path) -> None:
    server = start(folder / ("long" * 25))
    assert value(server.dsn, "select 1") == 1
    place = Path(psycopg.conninfo.conninfo_to_dict(server.dsn)["host"])
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    server.stop()
    assert not place.exists()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["white space", "it's", "a,b", 'say "so"', "back\\slash"])
def test_a_path_with_an_odd_character_works(start: Callable[..., Server], folder: Path, name: str) -> None:
    assert value(start(folder / name, anew=True).dsn, "select 1") == 1


def test_only_the_servers_user_can_reach_its_socket_and_its_data(start: Callable[..., Server]) -> None:
    server = start()
    for private in ("pgdata", "run"):
        assert stat.S_IMODE((server.data_folder / private).stat().st_mode) == 0o700
    assert (server.data_folder / "run" / ".s.PGSQL.5432").is_socket()


def test_a_short_socket_folder_that_somebody_else_made_is_refused(folder: Path) -> None:
    server = Server(folder / ("long" * 25), options=UNSAFE)
    initialise(server.data_folder)
    place = Path(psycopg.conninfo.conninfo_to_dict(server.dsn)["host"])
    place.mkdir(mode=0o777)
    try:
        with pytest.raises(SettingsError, match="not a folder that only the server can enter"):
            server.start()
    finally:
        place.rmdir()


def test_an_interrupted_first_start_leaves_no_half_made_database(start: Callable[..., Server], folder: Path) -> None:
    half = server_user.make_open_folder(folder) / "pgdata.new"
    half.mkdir()
    (folder / "start.lock").touch()
    (half / "PG_VERSION").write_text("18")
    assert value(start().dsn, "select 1") == 1
    assert not half.exists()


def test_a_folder_with_other_files_is_refused_and_nothing_is_written(folder: Path) -> None:
    server_user.make_open_folder(folder)
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


def test_a_full_disc_is_reported_before_anything_is_created(folder: Path, monkeypatch: Any) -> None:
    usage = shutil.disk_usage("/")._replace(free=3 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SettingsError, match="has 3 MB free and a new database needs"):
        Server(folder).start()
    assert not (folder / "pgdata").exists()


@as_root
def test_new_folders_are_open_to_the_servers_user_whatever_roots_umask_and_others_stay_as_they_are(
    start: Callable[..., Server], folder: Path
) -> None:
    existing = {Path.home(), Path(sys.prefix), Path(__file__), programs.find_binaries(), folder.parent}
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
    server_user.make_open_folder(folder / "a" / "b")
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
    prefix = programs.find_binaries().parent
    site = tmp_path / "site"
    package = prefix.parent.name
    shutil.copytree(prefix, site / package / prefix.name)
    shutil.copytree(prefix.parent.with_suffix(".libs"), site / f"{package}.libs")
    site.chmod(0o700)
    binaries = site / package / prefix.name / "bin"
    first = start(folder / "first", binaries=binaries, anew=True)
    assert value(first.dsn, "show server_version").startswith("18")
    (copy,) = (folder / "state").glob("postgresql-*")
    made = copy.stat().st_ino
    start(folder / "second", binaries=binaries)
    assert [found.stat().st_ino for found in (folder / "state").glob("postgresql-*")] == [made]
    assert stat.S_IMODE(site.stat().st_mode) == 0o700
    assert os.readlink(f"/proc/{postmaster(first)}/exe").startswith(str(copy))
