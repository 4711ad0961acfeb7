"""An outbox of the test's database."""

import pytest

from partbox import Outbox


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)
