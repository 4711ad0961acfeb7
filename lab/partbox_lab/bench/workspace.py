"""The workspace of a run: a folder, and a schema of its own in a user's database or in an embedded one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from psycopg.conninfo import make_conninfo

from partbox.db.connect import resolve_dsn
from partbox.text.dsn import parse_dsn
from partbox_lab.workspace import Workspace, workspace

SCHEMA: Final = "partbox_bench"
CONNECT_TIMEOUT: Final = 10  # seconds
MIB: Final = 1 << 20


@contextmanager
def bench_workspace(
    dsn: str | None, connections: int, *, binaries: Path | None = None, **settings: str
) -> Iterator[Workspace]:
    """Create the workspace and remove it at the end. Raise SettingsError if the schema exists. An embedded server
    allows `connections` and runs the programs in `binaries`. `settings` override the usual settings."""
    found = (
        None
        if dsn is None
        else make_conninfo("", **{"connect_timeout": str(CONNECT_TIMEOUT), **parse_dsn(resolve_dsn(dsn))})
    )
    options = _options(connections) | settings
    with workspace(found, SCHEMA, program="bench", options=options, binaries=binaries) as place:
        yield place


def _options(connections: int) -> dict[str, str]:
    """Return settings of an embedded server that is tuned to its machine, with fsync on."""
    buffers = max(128 * MIB, min(1024 * MIB, psutil.virtual_memory().total // 8))
    return {
        "shared_buffers": f"{buffers // MIB}MB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "max_connections": str(connections),
    }
