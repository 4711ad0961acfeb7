"""Statements of the hot path, through libpq's one blocking call instead of a cursor.

A cursor gives the interpreter lock away and waits for it again at every network read: hundreds of times for a page of
10,000 rows, each time up to 5 ms behind a busy handler. The blocking call does so once. Results are binary; in those
of a `use_raw_loaders` connection uuid, timestamps and json stay raw bytes.

On a connection that is made to be `prepared` (see db/connect.py) each statement is planned once. One that names values
in its text is planned once for these: so its plan has no segment in it that they rule out, which would be locked and
looked at every time.
"""

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
from partbox.db.sql import Conn, query
from partbox.db.type_conversion import DEFAULTS

Row = tuple[Any, ...]

PREPARED_LIMIT: Final = 16
"""Statements that a connection keeps prepared; polls are among them for several ranges of ids."""

LOAD_BATCH: Final = 200
"""Rows that are made before somebody looks at them: they are in the processor's cache then."""

_RAW = ("uuid", "timestamptz", "json")
_STATEMENT_NUMBERS: Final = count()  # of prepared statements: a name is never used again
_NAMED = re.compile(rb"%%|%\((\w+)\)s")  # a doubled % first: the schema's name may hold what looks like a parameter


def use_raw_loaders(conn: Conn) -> None:
    """Make binary results of this connection keep uuid, timestamptz and json as raw bytes."""
    for name in _RAW:
        conn.adapters.register_loader(name, ByteaBinaryLoader)


def fetch(
    conn: Conn,
    name: str,
    schema: str,
    values: Mapping[str, object],
    *,
    planned: Mapping[str, int] | None = None,
    look: Callable[[Sequence[Row]], object] | None = None,
) -> list[Row]:
    """The rows of a named query; values are sent as text, None as null.

    Those `planned` are numbers that stand in its text, as if it were another statement for each. `look` is called with
    some rows after the other as they are made.
    """
    text, names = _number_parameters(name, schema, tuple(planned.items()) if planned else ())
    params = [None if values[name] is None else str(values[name]).encode() for name in names]
    with (limit := deadline.of(conn)):
        result = _execute(conn, text, params)
    if conn.pgconn.status != ConnStatus.OK:
        raise limit.lost_error()
    if result.status != ExecStatus.TUPLES_OK:
        raise _statement_error(conn, result)
    transformer = Transformer(DEFAULTS if getattr(conn, "lent", True) else conn)  # also on an application's own
    transformer.set_pgresult(result)
    if look is None:
        return transformer.load_rows(0, result.ntuples, tuple)
    rows: list[Row] = []
    for first in range(0, result.ntuples, LOAD_BATCH):
        some = transformer.load_rows(first, min(first + LOAD_BATCH, result.ntuples), tuple)
        look(some)
        rows += some
    return rows


def run_script(conn: Conn, script: bytes) -> tuple[str | None, ...]:
    """Execute statements in one message; return the first row of the last of them as text, () if it has none."""
    with (limit := deadline.of(conn)):
        result = conn.pgconn.exec_(script)
    if conn.pgconn.status != ConnStatus.OK:
        raise limit.lost_error()
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    values = [result.get_value(0, column) for column in range(result.nfields)] if result.ntuples else []
    return tuple(None if value is None else bytes(value).decode() for value in values)


def array_literal(values: Iterable[object]) -> str:
    """An array literal of numbers, booleans and snapshots, none of which holds a quote or a backslash."""
    return "{" + ",".join("null" if value is None else f'"{value}"' for value in values) + "}"


def integer_array(values: Iterable[int]) -> str:
    """`array_literal` of whole numbers, of which a poll has a thousand."""
    return "{" + ",".join(map(str, values)) + "}"


def _execute(conn: Conn, text: bytes, params: list[bytes | None]) -> PGresult:
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
            server.exec_(b"deallocate " + longest_unused)  # that it is gone already would do no harm
    return server.exec_prepared(prepared[text], params, result_format=Format.BINARY)  # type: ignore[arg-type] # None: null


def _statement_error(conn: Conn, result: PGresult) -> Error:
    """The error of a statement. If somebody between us and the server loses what is prepared, nothing is any more."""
    error = error_from_result(result)
    if isinstance(error, InvalidSqlStatementName | DuplicatePreparedStatement) and isinstance(
        conn, deadline.WatchedConnection
    ):
        conn.prepared = None
    return error


@lru_cache(maxsize=256)
def _number_parameters(name: str, schema: str, planned: tuple[tuple[str, int], ...]) -> tuple[bytes, tuple[str, ...]]:
    """A named query with $1, $2 … for libpq, and the names of its parameters in that order; numbers where planned."""
    numbers = dict(planned)
    names: list[str] = []

    def put_parameter(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return b"%"
        if (named := match[1].decode()) in numbers:
            return b"%d" % numbers[named]
        names.append(named)
        return b"$%d" % len(names)

    return _NAMED.sub(put_parameter, query(name, schema)), tuple(names)
