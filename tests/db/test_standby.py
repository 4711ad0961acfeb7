"""A10: a standby lists no running transaction in its snapshots, so that a poll there would take them all for ended."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.db import server_user
from partbox.db.connect import check, connect
from partbox.errors import SchemaError


@pytest.fixture
def standby(own_server: Any, folder: Path) -> Iterator[str]:
    """The DSN of a standby of `own_server`, made from a base backup."""
    server, programs = own_server.server, own_server.server._programs
    primary = conninfo_to_dict(own_server.dsn)
    source = ["-h", str(primary["host"]), "-p", str(primary["port"]), "-U", "postgres"]
    server_user.open_folder(folder)
    pgdata = server_user.private_folder(folder / "pgdata", programs.user)
    programs.run("pg_basebackup", pgdata, *source, "-c", "fast", "-X", "fetch", "--no-sync")
    (pgdata / "standby.signal").touch()
    settings = {**server.options, "unix_socket_directories": str(pgdata)}
    options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
    programs.run("pg_ctl", pgdata, "start", "-l", "server.log", "-o", options, "-w", "-t", "60")
    try:
        yield make_conninfo(own_server.dsn, host=str(pgdata))
    finally:
        programs.run("pg_ctl", pgdata, "stop", "-m", "immediate", "-w")


def test_a_worker_refuses_a_standby(standby: str, own_server: Any) -> None:
    with pytest.raises(psycopg.OperationalError, match="session is read-only"):
        connect(standby, lease=6)
    with psycopg.connect(standby, autocommit=True) as conn, pytest.raises(SchemaError, match="standby"):
        check(conn, "partbox")
    with connect(own_server.dsn, lease=6) as conn:
        check(conn, "partbox")
