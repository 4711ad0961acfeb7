"""Runs commands as `partbox …` would, in a folder of their own."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from partbox.cli import main


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
