from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import Forks, forks
from page_reader import Reader

__all__ = ["forks"]


@pytest.fixture(params=["forked", pytest.param("installed", marks=pytest.mark.soak)])
def reader(tmp_path: Path, empty_dsn: str, request: pytest.FixtureRequest, forks: Forks) -> Iterator[Reader]:
    reader = Reader(tmp_path, empty_dsn, forks if request.param == "forked" else None)
    yield reader
    reader.close()
