"""An archive beside a log: records planted by hand, and a purge that archives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from purgeable import Planted

from partbox.operations.purge import Purged, purge
from partbox.settings import load


@pytest.fixture
def planted(conn: psycopg.Connection[Any]) -> Planted:
    return Planted(conn)


@pytest.fixture
def small(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """The log in segments of a hundred ids: [0, 100), [100, 200) … [900, 1000), and the ids up to 1000 drawn."""
    conn.execute("drop table partbox.record_1")
    for lower in range(0, 1000, 100):
        conn.execute(
            f"create table partbox.record_{lower or 1} partition of partbox.record"
            f" for values from ({lower or 'minvalue'}) to ({lower + 100})"
        )
    conn.execute("select setval('partbox.record_id_seq', 1000)")
    return conn


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the archive of a test is; not there yet."""
    return tmp_path / "archive"


@pytest.fixture
def purged(dsn: str, place: Path) -> Callable[..., Purged]:
    """Purge once, with the archive of the test unless another is given, and the settings given."""

    def run(*, patient: bool = False, stopped: Callable[[], bool] = lambda: False, **given: Any) -> Purged:
        settings = load(**{"archive": str(place), **given})
        return purge(lambda: dsn, settings, patient=patient, is_stopped=stopped)

    return run
