"""Servers that a test starts and stops itself."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from embedding import UNSAFE
from servers import initialise

from partbox.embedded.server import Server


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own, and stops them. Their data is a copy unless it is to be made `anew`."""
    servers: list[Server] = []

    def start(data: Path = folder, binaries: Path | None = None, anew: bool = False, **options: str) -> Server:
        if not anew and not data.exists():
            initialise(data)
        servers.append(Server(data, binaries=binaries, options=UNSAFE | options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop("immediate")
