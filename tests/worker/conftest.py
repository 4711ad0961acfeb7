"""Desks; fewer examples than with `--soak`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from desk import Desk
from run_size import pytest_collection_modifyitems, pytest_configure

from partbox.testing.sessions import Sessions

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]


@pytest.fixture
def desk_with(dsn: str, partbox_sessions: Sessions) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**settings: Any) -> Desk:
        made.append(Desk(dsn, partbox_sessions, **settings))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


@pytest.fixture
def desk(desk_with: Callable[..., Desk]) -> Desk:
    return desk_with()
