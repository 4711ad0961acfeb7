"""The page of a test's database."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from planted_records import Planter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from forked_commands import forks
from live import Live

from partbox.dashboard import feed

__all__ = ["forks"]


@pytest.fixture
def plant(conn: psycopg.Connection[Any]) -> Planter:
    return Planter(conn)


@pytest.fixture
def live(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """The page of the test's database, served in this process; it looks four times a second, not once."""
    monkeypatch.setattr(feed, "REFRESH_INTERVAL", 0.26)
    live = Live(dsn, fresh=0.25)
    try:
        yield live
    finally:
        live.close()
