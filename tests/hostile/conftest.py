import threading
from collections.abc import Callable, Iterator

import pytest
from house import House


@pytest.fixture
def open_house(dsn: str) -> Iterator[Callable[..., House]]:
    """Makes houses on the test's database."""
    made: list[House] = []

    def make(**settings: object) -> House:
        made.append(House(dsn, **settings))
        return made[-1]

    yield make
    for house in made:
        house.close()


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    return open_house()


@pytest.fixture
def waits() -> Callable[[float], bool]:
    """Lets so many seconds pass: for what lasts, and nothing tells that it has lasted."""
    return threading.Event().wait
