"""Examples by their names, and the servers that they may need."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_commands import Forks, forks
from readme_commands import Example, url_of

__all__ = ["forks"]

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sinks"))

QUICK = {"PARTBOX_HEARTBEAT": "0.2"}
"""How soon a worker hears that its subscription is paused, or goes on."""


@pytest.fixture
def example(tmp_path: Path, forks: Forks, empty_dsn: str) -> Iterator[Any]:
    """Makes the example of a name, with PARTBOX_DSN set to an empty database; what it started is ended."""
    made: list[Example] = []

    def make(name: str, **environment: str) -> Example:
        made.append(Example(name, tmp_path / name, {"PARTBOX_DSN": url_of(empty_dsn)} | QUICK | environment, forks))
        return made[-1]

    yield make
    for each in made:
        each.kill()
