"""A server whose WAL can be decoded, reached by TCP, as a connector needs it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from servers import OwnServer, new_server

from partbox.db.schema.migrate import migrate

HOST = "127.0.0.1"


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """With a database that has a writer-only outbox; who comes by TCP needs a password."""
    port = _free_port()
    with new_server({"wal_level": "logical", "listen_addresses": HOST, "port": str(port)}) as server:
        admin = make_conninfo(server.dsn, port=port)
        with psycopg.connect(admin, autocommit=True) as conn:
            ((rules,),) = conn.execute("show hba_file").fetchall()
            Path(rules).write_text(f"local all all trust\nhost shop all {HOST}/32 scram-sha-256\n")
            conn.execute("select pg_reload_conf()")
            conn.execute("create database shop")
        dsn = make_conninfo(admin, dbname="shop")
        migrate(dsn, writer_only=True)
        yield OwnServer(server, dsn)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])
