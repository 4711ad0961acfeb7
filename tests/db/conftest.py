"""Fewer examples than with `--soak`; commands that are forked; outboxes, dead records and roles to work with."""

from collections.abc import Iterator

import pytest
from forked_commands import forks
from planted_records import Planter
from psycopg import Connection
from roles import Cast, cast_of
from run_size import pytest_collection_modifyitems, pytest_configure
from savings import me, mine

from partbox import Outbox

__all__ = ["forks", "me", "mine", "pytest_collection_modifyitems", "pytest_configure"]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def plant(conn: Connection) -> Planter:
    return Planter(conn)


@pytest.fixture
def cast(dsn: str) -> Iterator[Cast]:
    with cast_of(dsn) as cast:
        yield cast
