"""The DSN `embedded:`, and the processes that share its server."""

import os
from pathlib import Path
from typing import Any

from embedding import answer, finish, postmaster, using, value
from servers import initialise

from partbox.embedded import address
from partbox.embedded.server import Server


def test_a_dsn_that_is_not_embedded_is_returned_unchanged() -> None:
    for dsn in ("", "postgresql://u@h/d", "host=/tmp dbname=embedded:"):
        assert address.resolve(dsn) == dsn


def test_the_path_of_an_embedded_dsn_is_relative_to_the_current_folder(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert address.folder_of("embedded:./some/dir") == tmp_path / "some" / "dir"
    assert address.folder_of("embedded:/var/tmp/x") == Path("/var/tmp/x").resolve()
    assert address.folder_of("embedded:") == address.find_default_folder()


def test_the_default_folder_is_the_users_state_folder_and_the_systems_for_root(monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ada/state")
    expected = "/var/lib/partbox/db" if os.geteuid() == 0 else "/home/ada/state/partbox/db"
    assert address.find_default_folder() == Path(expected)


def test_the_last_process_stops_the_server_and_no_other_does(folder: Path, tmp_path: Path) -> None:
    server, dsn = Server(folder), f"embedded:{folder}"
    with using(dsn, tmp_path) as first, using(dsn, tmp_path) as second:
        assert answer(first) == answer(second) == server.dsn
        finish(first)
        assert server.is_running
        assert value(server.dsn, "select 1") == 1
        finish(second)
    assert not server.is_running


def test_a_killed_process_counts_as_gone(folder: Path, tmp_path: Path) -> None:
    server, dsn = Server(folder), f"embedded:{folder}"
    initialise(folder)
    with using(dsn, tmp_path) as first, using(dsn, tmp_path) as second:
        assert answer(first)
        assert answer(second)
        first.kill()
        first.wait()
        assert server.is_running
        finish(second)
    assert not server.is_running


def test_a_server_left_by_killed_processes_is_used_and_stopped_by_the_next(folder: Path, tmp_path: Path) -> None:
    server, dsn = Server(folder), f"embedded:{folder}"
    initialise(folder)
    with using(dsn, tmp_path) as first:
        assert answer(first)
    assert server.is_running
    pid = postmaster(server)
    with using(dsn, tmp_path) as second:
        assert answer(second)
        assert postmaster(server) == pid
        finish(second)
    assert not server.is_running
