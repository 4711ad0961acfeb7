"""A broker for a test, with nothing in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import BROKERS, Broker


@pytest.fixture(params=BROKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(kind: str, tmp_path: Path) -> Iterator[Broker]:
    """A server of that kind, which runs."""
    made = BROKERS[kind](tmp_path)
    made.start()
    yield made
    made.kill()
