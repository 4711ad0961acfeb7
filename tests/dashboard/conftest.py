"""The page of a test's database, and a Chromium that looks at it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from planting import Planter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from chromium import Tab, chromium
from forked import forks
from live import Live

from partbox.dashboard import feed

__all__ = ["forks"]


@pytest.fixture
def plant(conn: psycopg.Connection[Any]) -> Planter:
    return Planter(conn)


@pytest.fixture
def live(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """The page of the test's database, served in this process; it looks four times a second, not once."""
    monkeypatch.setattr(feed, "EVERY", 0.26)
    live = Live(dsn, fresh=0.25)
    try:
        yield live
    finally:
        live.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium for the tests of a module; it is gone when asynchronous tests of other modules run."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens addresses in tabs of their own. Afterwards: no script failed, nothing was asked of anybody else."""
    opened: list[Tab] = []

    def open(address: str, **options: Any) -> Tab:
        opened.append(Tab(browser, address, **options))
        return opened[-1]

    yield open
    for each in opened:
        each.close()
    for each in opened:
        assert each.complaints == []
        assert each.strangers == []
