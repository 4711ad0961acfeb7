"""Large records, written by SQL, and a line to the database that is slow."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK = 16_384


def write_large(conn: psycopg.Connection[Any], count: int, size: int, partition: int = 5, **fields: Any) -> None:
    """So many events of `size` bytes; compressed they are far smaller, as it is with JSON that repeats itself."""
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)"
        " select %s, gen_random_uuid(), 'Large', 'Key', %s, to_json(repeat('x', %s - 2)) from generate_series(1, %s)",
        [partition, fields.get("key"), size, count],
    )


def write_bytes(conn: psycopg.Connection[Any], count: int, size: int, partition: int = 5) -> None:
    """The same with bytes that cannot be compressed."""
    conn.execute(
        """insert into partbox.record (partition, event_id, event_type, payload_bytes, content_type)
           select %s, gen_random_uuid(), 'Large', substring(data from 1 for %s), 'application/octet-stream'
             from (select convert_to(string_agg(md5(n::text), ''), 'utf8') as data
                     from generate_series(1, %s / 32 + 1) n) one, generate_series(1, %s)""",
        [partition, size, size, count],
    )


@contextmanager
def slow_line(dsn: str, rate: float) -> Iterator[str]:
    """The DSN of the same database behind a line that carries `rate` bytes a second from the server."""
    given = conninfo_to_dict(dsn)
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def carry(source: socket.socket, sink: socket.socket, pace: float) -> None:
        try:
            while data := source.recv(CHUNK):
                sink.sendall(data)
                time.sleep(len(data) * pace)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            there = _reach(str(given["host"]), int(given.get("port") or 5432))
            # Small buffers: else the server is rid of a megabyte before the line has carried any of it.
            there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
            ends.extend((here, there))
            for pair in ((here, there, 0.0), (there, here, 1 / rate)):
                threading.Thread(target=carry, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield make_conninfo(dsn, host="127.0.0.1", port=listener.getsockname()[1])
    finally:
        for end in (listener, *ends):
            end.close()


def _reach(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    there = socket.socket(socket.AF_UNIX)
    there.connect(f"{host}/.s.PGSQL.{port}")
    return there
