from collections.abc import Callable, Iterator
from typing import Any

import pytest
from desk import Desk


@pytest.fixture
def desk_with(dsn: str) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**settings: Any) -> Desk:
        made.append(Desk(dsn, **settings))
        return made[-1]

    yield make
    for desk in made:
        desk.conn.close()


@pytest.fixture
def desk(desk_with: Callable[..., Desk]) -> Desk:
    return desk_with()
