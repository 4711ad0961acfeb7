"""Connections of worker processes and supervisors, and what is checked on each new one."""

import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, Error, errors
from psycopg.conninfo import make_conninfo
from psycopg.pq import Format, TransactionStatus

from partbox.callables import name_of, place_of
from partbox.db.deadline import WatchedAsyncConnection, WatchedConnection, deadline_for_lease, watched
from partbox.db.driver import AsyncPlainConnection, AsyncPlainCursor, PlainConnection, PlainCursor
from partbox.db.sql import Conn, query
from partbox.db.type_conversion import DEFAULTS
from partbox.errors import PartboxError, SchemaError, SettingsError
from partbox.platform import call_in_forked_children, refuse_on_windows
from partbox.text.dsn import bare, connect_share, parts
from partbox.text.printing import printable_line, text_of
from partbox.text.secrets import masked
from partbox.text.wording import command

is_instrumented = False
"""True if an application's patch of psycopg is to see the connections of workers; see `Tracing(statements=True)`."""

TRANSACTION_TIMEOUT_SINCE = (
    170_000  # the first version with a transaction_timeout, which older ones refuse among the startup options
)
POOLER_REFUSAL = "unsupported startup parameter"  # PgBouncer's words
PREPARE_THRESHOLD = 5  # executions of a statement, from which on psycopg prepares it by default
MAX_ERROR_LENGTH = 500  # characters of what an application's error says

PLAN_OPTIONS = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off"
"""The options of a session whose plans cannot go wrong, so that its statements may be planned once.

Planning a poll anew costs 1.5 to 4 ms, twenty times what it takes to run. But a plan that was made while a segment was
empty was a sequential scan, and stayed one. Without sequential and bitmap scans, and with plans that know no values,
the log is read by an index, whatever the statistics say.
"""

ROW_SECURITY_OPTION = "-c row_security=off"
"""PostgreSQL raises where it would hide rows.

Not on a connection that is lent: its handlers may live by row security, and what we send there are functions that
switch it off for themselves.
"""

Dsn = str | Callable[[], str]

_open_connections: WeakSet[Conn | AsyncConnection[Any]] = WeakSet()  # what a forked process would inherit

default_dsn: Callable[[], str] | None = None
"""Gives the DSN where nobody names one: that of the framework that this process belongs to."""


class NoDsn(psycopg.OperationalError):
    """A DSN callable failed or returned none; handled, and retried, as a server that does not answer."""


class PoolerRefused(psycopg.OperationalError):
    """A pooler refused the session options, and `pooler` is not set."""


class TransientSchemaError(SchemaError):
    """The schema cannot be worked on now: it is being made anew, or a privilege is missing. A running worker waits."""


@dataclass(frozen=True, slots=True)
class DsnSource:
    """Gives the DSN of each new connection. A class and not a closure, so that it travels to processes."""

    dsn: Dsn | None

    def __call__(self) -> str:
        return resolve(self.dsn)


def resolve(dsn: Dsn | None) -> str:
    """Return a valid libpq DSN: calls a callable, starts the server of an `embedded:` DSN.

    SettingsError, which quotes no part of it, if it is missing or invalid; NoDsn if a callable returns none.
    """
    if callable(dsn):
        return _call_dsn_source(dsn)
    if not dsn and default_dsn is not None:
        dsn = default_dsn()
    dsn = bare(dsn or "")
    if not dsn:
        raise SettingsError("no database: set PARTBOX_DSN, pass --dsn, or Outbox('postgresql://…'); or use embedded:")
    if dsn.startswith("embedded:"):
        refuse_on_windows("the embedded PostgreSQL runs on Linux and macOS: give the DSN of a server")
        from partbox.embedded import address

        return address.resolve(dsn)
    parts(dsn)
    return dsn


def _call_dsn_source(source: Callable[[], str]) -> str:
    """Resolve the DSN that an application's callable returns; NoDsn for any failure, which may be temporary."""
    try:
        given: object = source()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        error_text = printable_line(
            masked(f"{type(error).__name__}: {' '.join(text_of(error).split())}"), MAX_ERROR_LENGTH
        )
        raise NoDsn(f"the DSN callable failed ({_describe_source(source)}): {error_text}") from None
    text = text_of(given) if issubclass(type(given), str) else ""  # a subclass of text may be anything
    if not text:
        kind = "an empty text" if type(given) is str else f"a {type(given).__name__}"
        raise NoDsn(
            f"the DSN callable returned {kind} ({_describe_source(source)}): it must return a text such as "
            "postgresql://user@host/database"
        )
    try:
        return resolve(text)
    except PartboxError as error:
        raise NoDsn(f"the DSN callable returned no usable DSN ({_describe_source(source)}): {error}") from None


def _describe_source(source: Callable[[], str]) -> str:
    """The name of the callable and the place where it is defined."""
    try:
        return printable_line(f"{name_of(source)}, {place_of(source)}", MAX_ERROR_LENGTH)
    except Exception as wrong:  # it is the application's, and may be anything
        return f"a callable without a name: {type(wrong).__name__}"


def connection_parameters(dsn: str, *, lease: float, pooler: bool, name: str, more: str = "") -> dict[str, Any]:
    """Connection parameters of a worker: a dead peer is noticed within the lease, and no statement outlives it.

    With `pooler` no session option is sent: behind a transaction pooler it would leak into other clients or be
    refused; the role must carry them then.
    """
    whole = max(2, int(lease))
    given = parts(dsn)
    merged: dict[str, Any] = {
        "application_name": name,
        "client_encoding": "utf8",
        "connect_timeout": connect_share(lease, given),
        "tcp_user_timeout": whole * 1000,
        "keepalives_idle": max(1, whole // 3),
        "keepalives_interval": max(1, whole // 3),
        "keepalives_count": 2,
        **given,
        "target_session_attrs": "read-write",
    }
    if not pooler:
        millis = int(lease * 1000)
        merged["options"] = (
            f"{given.get('options') or ''} -c jit=off -c statement_timeout={millis}"
            f" -c idle_in_transaction_session_timeout={millis // 2} -c default_transaction_isolation=read\\ committed"
            " -c default_transaction_deferrable=off -c lock_timeout=0 -c idle_session_timeout=0"
            f" -c array_nulls=on {more}"  # else a NULL in an array is a text of four letters
        ).strip()
    return merged


class BinaryCursor(PlainCursor[Any]):
    """A cursor whose results are binary: no setting of the database or role, DateStyle above all, changes those.

    Also behind a pooler, where no session option may be sent.
    """

    def __init__(self, connection: Conn, *, row_factory: Any = None) -> None:
        super().__init__(connection, row_factory=row_factory or connection.row_factory)
        self.format = Format.BINARY


def connect(
    dsn: str,
    *,
    lease: float,
    pooler: bool = False,
    name: str = "partbox",
    lent: bool = False,
    prepared: bool = False,
    limit: float | None = None,
) -> WatchedConnection:
    """A worker's connection, autocommit. psycopg prepares nothing on it; what `blocking` sends is, if it is `prepared`.

    `lent` to an application's code: results are not binary, for types that psycopg reads as text, and without a pooler
    psycopg prepares as by default. A statement without an answer for `limit` seconds, else a little more than `lease`,
    cuts it.
    """
    more = ("" if lent else f"{ROW_SECURITY_OPTION} ") + (PLAN_OPTIONS if prepared else "")
    conninfo = make_conninfo("", **connection_parameters(dsn, lease=lease, pooler=pooler, name=name, more=more))
    factory, adapters = (PlainCursor[Any], None) if lent else (BinaryCursor, DEFAULTS)
    prepare_threshold = PREPARE_THRESHOLD if lent and not pooler else None
    try:
        conn: WatchedConnection = _connect_method(WatchedConnection, PlainConnection)(
            conninfo, autocommit=True, prepare_threshold=prepare_threshold, cursor_factory=factory, context=adapters
        )
    except psycopg.OperationalError as error:
        if POOLER_REFUSAL in str(error) and not pooler:
            raise PoolerRefused(_pooler_refusal_text(error)) from None
        raise
    conn.lent, conn.pooled = lent, pooler
    _open_connections.add(conn)
    conn.watch(deadline_for_lease(lease) if limit is None else limit)
    try:
        if not pooler:
            _set_up_session(conn, lent=lent, prepared=prepared)
    except BaseException:
        conn.close()
        raise
    return conn


async def connect_async(dsn: str, *, lease: float, pooler: bool, name: str) -> WatchedAsyncConnection:
    """`connect`, for a connection that an application's asynchronous code gets."""
    conninfo = make_conninfo("", **connection_parameters(dsn, lease=lease, pooler=pooler, name=name))
    prepare_threshold = None if pooler else PREPARE_THRESHOLD
    conn: WatchedAsyncConnection = await _connect_method(WatchedAsyncConnection, AsyncPlainConnection)(
        conninfo, autocommit=True, prepare_threshold=prepare_threshold, cursor_factory=AsyncPlainCursor[Any]
    )
    _open_connections.add(conn)
    conn.deadline = watched(conn, deadline_for_lease(lease))
    if not pooler and conn.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        await conn.execute(query("untimed", "partbox"))
    return conn


def _connect_method(kind: Any, plain: Any) -> Any:
    """Return the `connect` of a class: psycopg's own, or what an application has put in its place, if that is asked."""
    return super(plain, kind).connect if is_instrumented else kind.connect


def connect_plain(dsn: str, **more: Any) -> Conn:
    """Open a connection in autocommit mode with no deadline and no options, for a command or a few statements."""
    return PlainConnection.connect(dsn, autocommit=True, context=DEFAULTS, cursor_factory=PlainCursor[Any], **more)


def _set_up_session(conn: WatchedConnection, *, lent: bool, prepared: bool) -> None:
    """Finish a session that is all ours, by what startup options cannot say."""
    if conn.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        conn.execute(query("untimed", "partbox"))  # of no schema, as those that follow
    if not lent:
        seeing, path, _ = conn.execute(query("session_begin", "partbox")).fetchone() or (False, None, None)
        conn.pooled = not seeing  # a pooler took the options and did not hand them on
        conn.path = path if seeing else None
    # Unless a pooler took the options and did not hand them on, its statements are prepared from here on.
    if prepared and conn.execute(query("is_planned", "partbox")).fetchone() == (True,):
        conn.prepared = OrderedDict()


def use_role_search_path(conn: Conn, *, here: bool = False) -> None:
    """Give names without a schema the meaning that they have for the role, from now on or `here`, in this transaction.

    It is for tables and SQL that an operator names: in a session of ours such names are PostgreSQL's own alone.
    """
    if isinstance(conn, WatchedConnection) and conn.path is not None:
        conn.execute(query("search_path", "partbox"), {"path": conn.path, "here": here})


def _pooler_refusal_text(error: psycopg.OperationalError) -> str:
    error_text = str(error).splitlines()[0].rpartition("FATAL:")[2].strip()
    return (
        f"a connection pooler, such as PgBouncer, refuses the options of a session ({error_text}): set "
        f"PARTBOX_POOLER=1 or "
        "give --pooler; `partbox doctor` then says what the role must carry instead"
    )


def is_standby(dsn: str, *, lease: float, pooler: bool = False, name: str = "partbox") -> bool:
    """True if a standby answers where `connect` failed; False also if nobody answers."""
    kwargs = connection_parameters(dsn, lease=lease, pooler=pooler, name=name) | {"target_session_attrs": "standby"}
    try:
        connect_plain(make_conninfo("", **kwargs)).close()
    except psycopg.Error:
        return False
    return True


def check(conn: Conn, schema: str) -> None:
    """SchemaError unless this is the primary of the cluster that the cursors were written in, and readable."""
    row = conn.execute(query("marker", schema), {}).fetchone() or (True, False, False)
    standby, original, readable, *worn = row
    if standby:
        raise SchemaError("this server is a standby: workers poll the primary only (its DSN is needed)")
    if not readable:
        raise TransientSchemaError(
            f'no privilege on sequence "{schema}".record_id_seq: grant select on it to the worker role'
        )
    if not original:
        raise SchemaError(
            f'schema "{schema}" is a logical copy (dump or replication): its cursors are those of another cluster, and '
            f"workers would lose events; {command('rebase', schema)} adopts it"
        )
    if any(worn) and conn.info.transaction_status == TransactionStatus.IDLE:
        with suppress(errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction):  # another session may do it
            conn.execute(query("mark", schema), {})


def _detach_inherited() -> None:
    """Replace each inherited socket by /dev/null: its number stays taken, since libpq may still write to it.

    A forked process must neither use nor close its parent's connections. What it writes reaches the parent's session,
    and libpq writes even when a connection is merely garbage-collected: it sends Terminate.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for conn in list(_open_connections):
        with suppress(Error, OSError):
            os.dup2(nothing, conn.fileno(), inheritable=False)
    os.close(nothing)
    _open_connections.clear()


call_in_forked_children(_detach_inherited)
