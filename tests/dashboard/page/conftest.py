"""A Chromium that looks at the page of a test's database."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chromium import Tab, chromium


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """A page for all tests of a file, for it is the process of a new one that costs; none of them may be asynchronous,
    for playwright's loop runs as long as it does."""
    with chromium() as page:
        yield page


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
