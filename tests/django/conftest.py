"""Projects on a database of the test."""

from pathlib import Path
from typing import Any

import pytest
from forked_commands import forks
from project import Project

__all__ = ["forks"]


@pytest.fixture
def project(tmp_path: Path, empty_dsn: str, forks: Any) -> Project:
    """On a database without the schema."""
    return Project(tmp_path, empty_dsn, forks)


@pytest.fixture
def migrated(tmp_path: Path, dsn: str, forks: Any) -> Project:
    """On one that has it, so that only Django's tables are to be made."""
    made = Project(tmp_path, dsn, forks)
    made.manage("migrate", "-v", "0")
    return made
