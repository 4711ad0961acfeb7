"""An outbox, and the lines that it logs."""

import pytest
from logged import Lines

from partbox import Outbox


@pytest.fixture
def lines(caplog) -> Lines:
    return Lines(caplog)


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn)
