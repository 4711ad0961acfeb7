"""Segments of a hundred ids in a log of its own, what a purge finds in them, and a look at them."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from purgeable import Planted, divide

from partbox.segments import SegmentReport, maintain_segments
from partbox.settings import load


@pytest.fixture
def planted(conn: psycopg.Connection[Any]) -> Planted:
    return Planted(conn)


@pytest.fixture
def small(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """The log in segments of a hundred ids: [0, 100), [100, 200) … [900, 1000), and the ids up to 1000 drawn."""
    divide(conn)
    return conn


@pytest.fixture
def look(dsn: str) -> Callable[..., SegmentReport]:
    """Tend once, with the settings given."""
    return lambda **keywords: maintain_segments(lambda: dsn, load(**keywords))
