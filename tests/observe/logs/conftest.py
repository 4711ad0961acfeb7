"""An outbox, and the lines that it logs."""

from collections.abc import Callable

import pytest
from logged import Lines

from partbox import Outbox
from partbox.testing.statements import advance


@pytest.fixture
def lines(caplog) -> Lines:
    return Lines(caplog)


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def deliver(conn, drain) -> Callable[[Outbox], None]:
    """Deliver what is due, and what waits, until nothing does: by the parts of a worker, without its threads."""

    def deliver(outbox: Outbox) -> None:
        while drain(outbox):
            advance(conn, "partbox", 1)

    return deliver
