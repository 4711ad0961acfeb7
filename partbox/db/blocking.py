"""Run the statements of the hot path directly on libpq, with one blocking call each.

A cursor releases the GIL and waits for it again at every network read: hundreds of times for a page of 10,000 rows, and
each time up to 5 ms behind a busy handler. The blocking call does so once. Parameters are sent as text, and results
come back in binary format."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final

from psycopg import Error
from psycopg.adapt import Transformer
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName, error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.types.string import ByteaBinaryLoader

from partbox.db import deadline
from partbox.db.sql import Conn, load_query
from partbox.db.type_conversion import DEFAULTS

Row = tuple[Any, ...]

PREPARED_LIMIT: Final = 16
"""Statements that a connection keeps prepared. Polls for several ranges of ids are among them."""

LOAD_BATCH: Final = 200
"""Rows that are converted before `on_rows` sees them, few enough to be still in the processor's cache."""

_RAW = ("uuid", "timestamptz", "json")
# A name is never used again, not even by another connection.
_STATEMENT_NUMBERS: Final = count()
# The doubled percent sign comes first, because the name of the schema may contain text that looks like a parameter.
_NAMED = re.compile(rb"%%|%\((\w+)\)s")


def use_raw_loaders(conn: Conn) -> None:
    """Make this connection return uuid, timestamptz and json columns as undecoded bytes."""
    for name in _RAW:
        conn.adapters.register_loader(name, ByteaBinaryLoader)


def fetch(
    conn: Conn,
    name: str,
    schema: str,
    values: Mapping[str, object],
    *,
    planned: Mapping[str, int] | None = None,
    on_rows: Callable[[Sequence[Row]], object] | None = None,
) -> list[Row]:
    """Run the named SQL query with these values and return all of its rows.

    Every value is sent as text, or as null if it is None. `planned` gives the integers that are written into the text
    of the statement, so that the planner knows them. `on_rows` is called with each batch of `LOAD_BATCH` rows as soon
    as they are loaded. Raise `HungError` if the deadline of the connection cut it, `OperationalError` if the server
    closed it, and the error of the server if the statement failed."""
    # On a connection opened with `prepared` (see db/connect.py) each statement is planned once. A statement that has
    # values in its text is planned once for these values, so its plan leaves out the segments that the values exclude.
    # Such segments would be locked and checked in every execution.
    text, names = _number_parameters(name, schema, tuple(planned.items()) if planned else ())
    params = [None if values[name] is None else str(values[name]).encode() for name in names]
    with (limit := deadline.deadline_of(conn)):
        result = _execute(conn, text, params)
    if conn.pgconn.status != ConnStatus.OK:
        raise limit.build_lost_error()
    if result.status != ExecStatus.TUPLES_OK:
        raise _build_error(conn, result)
    # The connection may be lent to handlers or belong to the application, which may have registered loaders of their
    # own.
    transformer = Transformer(DEFAULTS if getattr(conn, "is_lent", True) else conn)
    transformer.set_pgresult(result)
    if on_rows is None:
        return transformer.load_rows(0, result.ntuples, tuple)
    rows: list[Row] = []
    for first in range(0, result.ntuples, LOAD_BATCH):
        some = transformer.load_rows(first, min(first + LOAD_BATCH, result.ntuples), tuple)
        on_rows(some)
        rows += some
    return rows


def run_script(conn: Conn, script: bytes) -> tuple[str | None, ...]:
    """Run several SQL statements in one round trip. Return the first row of the last result as texts."""
    # Return an empty tuple if there is no row.
    with (limit := deadline.deadline_of(conn)):
        result = conn.pgconn.exec_(script)
    if conn.pgconn.status != ConnStatus.OK:
        raise limit.build_lost_error()
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    values = [result.get_value(0, column) for column in range(result.nfields)] if result.ntuples else []
    return tuple(None if value is None else bytes(value).decode() for value in values)


def array_literal(values: Iterable[object]) -> str:
    """Format numbers, booleans or transaction snapshots as a PostgreSQL array, such as `{"1","2"}`."""
    # The values are not escaped. None becomes null.
    return "{" + ",".join("null" if value is None else f'"{value}"' for value in values) + "}"


def text_array(values: Iterable[str]) -> str:
    """Return texts as the text of a PostgreSQL array, such as `{"one","two"}`."""
    return array_literal(value.replace("\\", "\\\\").replace('"', '\\"') for value in values)


def integer_array(values: Iterable[int]) -> str:
    """Return integers as the text of a PostgreSQL array, such as `{1,2}`."""
    # This is faster than `array_literal`, because a poll sends a thousand integers.
    return "{" + ",".join(map(str, values)) + "}"


def _execute(conn: Conn, text: bytes, params: list[bytes | None]) -> PGresult:
    # The statement is prepared if the connection allows that. Only the `PREPARED_LIMIT` statements used last stay
    # prepared.
    prepared, server = getattr(conn, "prepared", None), conn.pgconn
    if prepared is None:
        return server.exec_params(text, params, result_format=Format.BINARY)
    if text in prepared:
        prepared.move_to_end(text)
    else:
        name = b"partbox_%d" % next(_STATEMENT_NUMBERS)
        result = server.prepare(name, text)
        if result.status != ExecStatus.COMMAND_OK:
            return result
        prepared[text] = name
        if len(prepared) > PREPARED_LIMIT:
            _, longest_unused = prepared.popitem(last=False)
            # The result is ignored: it does no harm if the statement is gone already.
            server.exec_(b"deallocate " + longest_unused)
    return server.exec_prepared(prepared[text], params, result_format=Format.BINARY)  # type: ignore[arg-type]


def _build_error(conn: Conn, result: PGresult) -> Error:
    # Stop preparing statements on this connection if a pooler lost its prepared statements.
    error = error_from_result(result)
    if isinstance(error, InvalidSqlStatementName | DuplicatePreparedStatement) and isinstance(
        conn, deadline.WatchedConnection
    ):
        conn.prepared = None
    return error


@lru_cache(maxsize=256)
def _number_parameters(name: str, schema: str, planned: tuple[tuple[str, int], ...]) -> tuple[bytes, tuple[str, ...]]:
    """Replace the named parameters of an SQL query by `$1`, `$2` and so on. Return its text and the names in order."""
    # A name becomes `$1` and so on, or its integer in `planned`.
    numbers = dict(planned)
    names: list[str] = []

    def put_parameter(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return b"%"
        if (named := match[1].decode()) in numbers:
            return b"%d" % numbers[named]
        names.append(named)
        return b"$%d" % len(names)

    return _NAMED.sub(put_parameter, load_query(name, schema)), tuple(names)
