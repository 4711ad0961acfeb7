"""Commands that are forked, and a service manager that they speak to."""

from collections.abc import Iterator

import pytest
from forked_commands import forks
from manager import Manager, manager

__all__ = ["forks"]


@pytest.fixture(name="manager")
def _manager(tmp_path) -> Iterator[Manager]:
    with manager(tmp_path) as made:
        yield made
