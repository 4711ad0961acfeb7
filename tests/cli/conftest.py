"""Runs commands as `partbox …` would, in a folder of their own."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest
from forked_commands import Forks, forks
from pty_screen import Screen
from servers import execute

from partbox.cli import main

__all__ = ["forks"]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of a command that failed."""
        assert (self.code, self.out) == (1, "")
        assert self.err.startswith("partbox: ")
        assert self.err.count("\n") == 1
        return self.err.strip()


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path) -> Path:
    """The current folder: empty, and no setting of the machine's environment."""
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def partbox(capsys) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        out, err = capsys.readouterr()
        return Ran(int(exit.value.code or 0), out, err)

    return run


@pytest.fixture
def screen(forks: Forks) -> Callable[..., Screen]:
    """Runs a command on a terminal of its own while `with screen(…):` lasts."""
    return partial(Screen, forks)


@pytest.fixture
def away(server, dsn) -> Callable[[], AbstractContextManager[None]]:
    """While `with away():` lasts nobody can use the test's database; those who did are cut off."""
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]

    @contextmanager
    def away() -> Iterator[None]:
        execute(server.dsn, "alter database {} allow_connections false", name)
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        try:
            yield
        finally:
            execute(server.dsn, "alter database {} allow_connections true", name)

    return away
