"""Traced outboxes, closed at the end."""

from typing import Any

import pytest
from spans import Traced


@pytest.fixture
def traced_with(dsn, partbox_sessions):
    made: list[Traced] = []

    def make(**settings: Any) -> Traced:
        made.append(Traced(dsn, partbox_sessions, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def traced(traced_with) -> Traced:
    return traced_with()
