"""A Chromium that looks at the page of a test's database."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chromium import Tab, chromium

HERE = Path(__file__).parent
_browser = ExitStack()
_pages: list[Any] = []


@pytest.fixture(scope="module")  # before what looks for processes that a test leaves behind
def page() -> Any:
    """A page for all tests of this folder, for it is the process of a new one that costs; none of them may be
    asynchronous, for playwright's loop runs as long as it does."""
    if not _pages:
        _pages.append(_browser.enter_context(chromium()))
    return _pages[0]


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the browser behind the last test of the folder: those of others may have loops of their own."""
    if nextitem is None or HERE not in nextitem.path.parents:
        _pages.clear()
        _browser.close()


@pytest.fixture
def tab(page: Any) -> Iterator[Callable[..., Tab]]:
    """Opens an address. Afterwards: no script failed, nothing was asked of anybody else."""
    opened: list[Tab] = []

    def open(address: str, **options: Any) -> Tab:
        assert not opened, "there is one page"
        opened.append(Tab(page, address, **options))
        return opened[-1]

    yield open
    for each in opened:
        each.leave()
        assert each.complaints == []
        assert each.strangers == []
