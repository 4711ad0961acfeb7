"""An outbox to be examined."""

import os
from collections.abc import Iterator

import psycopg
import pytest
from clinic import Clinic

from partbox.cli import main
from partbox.doctor import doctor


@pytest.fixture
def run(capsys, monkeypatch, tmp_path, dsn):
    """Runs a command as `partbox …` would, in a folder of its own, on the test's database; its code and output."""
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        return int(exit.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def brisk(monkeypatch) -> None:
    """Doctor looks again at once: for rows that were planted, and that nobody changes between two looks."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_AFTER", 0.0)


@pytest.fixture
def clinic(conn, tmp_path, run) -> Iterator[Clinic]:
    clinic = Clinic(conn, tmp_path, run)
    try:
        yield clinic
    finally:
        clinic.close()


@pytest.fixture
def crowded_clinic(crowded_dsn, tmp_path, run) -> Iterator[Clinic]:
    """One on a server whose notification queue is soon full."""
    with psycopg.connect(crowded_dsn, autocommit=True) as conn:
        yield Clinic(conn, tmp_path, run)
