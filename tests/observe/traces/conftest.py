"""Traced outboxes, closed at the end."""

from typing import Any

import pytest
from spans import ExcInfo


@pytest.fixture
def traced_with(dsn, partbox_sessions):
    made: list[ExcInfo] = []

    def make(**settings: Any) -> ExcInfo:
        made.append(ExcInfo(dsn, partbox_sessions, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def traced(traced_with) -> ExcInfo:
    return traced_with()
