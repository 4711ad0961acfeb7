"""Projects on a database of the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_commands import Forks
from project import Project
from servers import cloned, new_database
from shop_program import HANDLERS

from partbox.embedded.server import Server

LOADED = (
    "django.contrib.admin",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.test",
    "partbox.django.task_backend",
)
TABLES = "django_template"
"""A database with the schema and Django's own tables, to be cloned."""


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Forks that have Django: to import it takes longer than what most of these commands do."""
    made = Forks(*LOADED)
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path, empty_dsn: str, forks: Any) -> Project:
    """On a database without the schema."""
    return Project(tmp_path, empty_dsn, forks)


@pytest.fixture(scope="session")
def _tables(server: Server, forks: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = Project(tmp_path_factory.mktemp(TABLES), cloned(server.dsn, TABLES), forks)
    made.manage("migrate", "-v", "0")
    return TABLES


@pytest.fixture
def dsn(server: Server, _tables: str) -> Iterator[str]:
    """The DSN of a database with the schema and with Django's tables."""
    with new_database(server.dsn, _tables) as dsn:
        yield dsn


@pytest.fixture
def migrated(tmp_path: Path, dsn: str, forks: Any) -> Project:
    """On one that has both."""
    return Project(tmp_path, dsn, forks)


@pytest.fixture
def shop(migrated: Any) -> Any:
    module = migrated.folder / "shop/outbox.py"
    module.write_text(module.read_text() + HANDLERS)
    migrated.databases["default"] |= {"OTHER": migrated.dsn, "CONN_MAX_AGE": None}
    migrated.databases["other"] = {**migrated.databases["default"]}
    return migrated
