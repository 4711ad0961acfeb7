"""Resolve DSNs, open the connections of workers and supervisors, and check each new one. The timeouts of a session
follow from the lease, so that a worker learns that the server is gone before its lease ends."""

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
from partbox.db.deadline import WatchedAsyncConnection, WatchedConnection, deadline_for_lease, watch_connection
from partbox.db.driver import AsyncPlainConnection, AsyncPlainCursor, PlainConnection, PlainCursor
from partbox.db.sql import Conn, load_query
from partbox.db.type_conversion import DEFAULTS
from partbox.errors import PartboxError, SchemaError, SettingsError
from partbox.platform import call_in_forked_children, refuse_on_windows
from partbox.text.dsn import connect_share, parse_dsn, strip_text
from partbox.text.printing import shorten_line, text_of
from partbox.text.secrets import mask_secrets
from partbox.text.wording import format_command

is_instrumented = False
"""True if an application's patch of psycopg also applies to workers' connections. See `Tracing(statements=True)`."""

# The first version with `transaction_timeout`. Servers before it refuse the setting among the startup options.
TRANSACTION_TIMEOUT_SINCE = 170_000
# The words of PgBouncer.
POOLER_REFUSAL = "unsupported startup parameter"
PREPARE_THRESHOLD = 5  # executions until psycopg prepares a statement, by default
CONNECT_LEASES = (1.0, 2.0)  # leases, at first and after a connection has taken longer
MAX_ERROR_LENGTH = 500  # characters of an application's error

PLAN_OPTIONS = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off"
"""Options of a session whose plans cannot go wrong, so that statements may be planned once.

Planning a poll takes 1.5 to 4 ms, twenty times as long as running it. A plan that was made while a segment was empty
was a sequential scan and remained one. Without sequential and bitmap scans, and with generic plans, the log is read by
index whatever the statistics say.
"""

ROW_SECURITY_OPTION = "-c row_security=off"
"""Makes PostgreSQL raise an error where row security would hide rows.

A lent connection does not get it: handlers may depend on row security, and our functions that run there switch it off
for themselves.
"""

Dsn = str | Callable[[], str]

# A forked child would inherit these connections.
_open_connections: WeakSet[Conn | AsyncConnection[Any]] = WeakSet()

default_dsn: Callable[[], str] | None = None
"""Returns the DSN if nobody names one: the DSN of the framework that this process belongs to."""


class ConnectPatience:
    """The leases that a server may take to accept a connection, which are more after it has taken too long.

    A server accepts connections in order, including those that were given up. A client that gives up as early as
    before and connects again makes the queue longer, and may never be accepted."""

    def __init__(self) -> None:
        self.leases = CONNECT_LEASES[0]

    def reset(self) -> None:
        """Expect the server to be fast again."""
        self.leases = CONNECT_LEASES[0]

    def connect(self, dsn: str, **given: Any) -> WatchedConnection:
        """Open a connection as the function `connect` does, with this patience."""
        try:
            return connect(dsn, patience=self.leases, **given)
        except errors.ConnectionTimeout:
            self.leases = CONNECT_LEASES[1]
            raise


class NoDsnError(psycopg.OperationalError):
    """Error: the application's function that supplies the database address (DSN) failed or returned none.

    Workers retry, as they do if a server does not answer."""


class PoolerRefusedError(psycopg.OperationalError):
    """Error: a connection pooler refused the session options, so the setting `pooler` is needed."""


class TransientSchemaError(SchemaError):
    """Error: the outbox's schema cannot be used yet, because it is being recreated or a privilege is missing.

    A running worker waits."""


@dataclass(frozen=True, slots=True)
class DsnSource:
    """A callable that returns the database address (DSN), resolved anew for each connection."""

    # The callable can be passed to other processes.

    dsn: Dsn | None

    def __call__(self) -> str:
        return resolve_dsn(self.dsn)


def resolve_dsn(dsn: Dsn | None) -> str:
    """Turn the DSN setting into a valid libpq connection string. Raise `SettingsError` if it is invalid."""
    # A callable is called; raise `NoDsnError` if it gives no DSN. `embedded:` starts the embedded server and gives its
    # address. None and the empty string mean the default DSN of a framework. `SettingsError` is raised for a missing or
    # invalid DSN, and quotes no part of it.
    if callable(dsn):
        return _call_dsn_source(dsn)
    if not dsn and default_dsn is not None:
        dsn = default_dsn()
    dsn = strip_text(dsn or "")
    if not dsn:
        raise SettingsError("no database: set PARTBOX_DSN, pass --dsn, or Outbox('postgresql://…'); or use embedded:")
    if dsn.startswith("embedded:"):
        refuse_on_windows("the embedded PostgreSQL runs on Linux and macOS: give the DSN of a server")
        from partbox.embedded import address

        return address.resolve(dsn)
    parse_dsn(dsn)
    return dsn


def _call_dsn_source(source: Callable[[], str]) -> str:
    # Raise `NoDsnError` if the application's callable fails or returns no usable DSN.
    # Any failure may be temporary.
    try:
        given: object = source()
    except KeyboardInterrupt:
        raise
    # The callable may raise anything, `SystemExit` too. The text may contain a password, so it is masked and the cause
    # is dropped.
    except BaseException as error:
        error_text = shorten_line(
            mask_secrets(f"{type(error).__name__}: {' '.join(text_of(error).split())}"), MAX_ERROR_LENGTH
        )
        raise NoDsnError(f"the DSN callable failed ({_describe_source(source)}): {error_text}") from None
    # A subclass of `str` may redefine its methods.
    text = text_of(given) if issubclass(type(given), str) else ""
    if not text:
        kind = "an empty text" if type(given) is str else f"a {type(given).__name__}"
        raise NoDsnError(
            f"the DSN callable returned {kind} ({_describe_source(source)}): it must return a text such as "
            "postgresql://user@host/database"
        )
    try:
        return resolve_dsn(text)
    except PartboxError as error:
        raise NoDsnError(f"the DSN callable returned no usable DSN ({_describe_source(source)}): {error}") from None


def _describe_source(source: Callable[[], str]) -> str:
    try:
        return shorten_line(f"{name_of(source)}, {place_of(source)}", MAX_ERROR_LENGTH)
    # The callable belongs to the application and may fail when its attributes are read.
    except Exception as wrong:
        return f"a callable without a name: {type(wrong).__name__}"


def build_parameters(
    dsn: str, *, lease: float, pooler: bool, name: str, more: str = "", patience: float = 1.0
) -> dict[str, Any]:
    """Return the libpq parameters for a new connection: the parameters of the DSN, and timeouts.

    The DSN takes precedence except for `target_session_attrs`. With `pooler` no session options are sent: a transaction
    pooler would refuse them or leak them to other clients, so the role must carry them. `more` adds options. A server
    may take `patience` leases to accept the connection."""
    # The timeouts are derived from `lease`, in seconds.
    # A dead peer is noticed within the lease. No statement takes longer than the lease, and no transaction idles longer
    # than half of it.
    whole = max(2, int(lease))
    given = parse_dsn(dsn)
    merged: dict[str, Any] = {
        "application_name": name,
        "client_encoding": "utf8",
        "connect_timeout": connect_share(patience * lease, given),
        "tcp_user_timeout": whole * 1000,
        "keepalives_idle": max(1, whole // 3),
        "keepalives_interval": max(1, whole // 3),
        "keepalives_count": 2,
        **given,
        # Behind the DSN's own parameters: a worker must never read a standby.
        "target_session_attrs": "read-write",
    }
    if not pooler:
        millis = int(lease * 1000)
        # JIT is off because the estimated cost of a poll is high: each idle poll was compiled, for 77 to 158 ms.
        # Statements run at READ COMMITTED, whatever the role's default is: saves, claims and burials lock rows and then
        # read, in the next statement, what others have committed meanwhile. The poll needs a snapshot of its own, too.
        merged["options"] = (
            f"{given.get('options') or ''} -c jit=off -c statement_timeout={millis}"
            f" -c idle_in_transaction_session_timeout={millis // 2} -c default_transaction_isolation=read\\ committed"
            " -c default_transaction_deferrable=off -c lock_timeout=0 -c idle_session_timeout=0"
            # Without `array_nulls` a NULL in an array is a text of four letters.
            f" -c array_nulls=on {more}"
        ).strip()
    return merged


class BinaryCursor(PlainCursor[Any]):
    """A cursor that fetches results in binary format, independent of settings such as `DateStyle`.

    The cursor suits poolers, because no startup option is sent."""

    def __init__(self, connection: Conn, *, row_factory: Any = None) -> None:
        super().__init__(connection, row_factory=row_factory or connection.row_factory)
        self.format = Format.BINARY


def connect(
    dsn: str,
    *,
    lease: float,
    pooler: bool = False,
    name: str = "partbox",
    is_lent: bool = False,
    prepared: bool = False,
    limit: float | None = None,
    patience: float = 1.0,
) -> WatchedConnection:
    """Open a worker's connection in autocommit mode. It is cut if the server does not answer in time.

    - `lease`: seconds, from which all timeouts follow
    - `is_lent`: an application's code uses the connection, so psycopg's defaults hold for results and prepared
    statements
    - `prepared`: `db.blocking` prepares its statements, if the session really has the options that this needs
    - `limit`: seconds without an answer after which the connection is cut; by default a little more than `lease`
    - `patience`: leases that the server may take to accept the connection

    Raise `PoolerRefusedError` if a pooler refuses the options, and `OperationalError` if the server cannot be
    reached."""
    # Results of a lent connection are not binary, for types that psycopg reads as text. Without a pooler, psycopg
    # prepares statements on it as by default. On all other connections psycopg prepares none.
    more = ("" if is_lent else f"{ROW_SECURITY_OPTION} ") + (PLAN_OPTIONS if prepared else "")
    parameters = build_parameters(dsn, lease=lease, pooler=pooler, name=name, more=more, patience=patience)
    conninfo = make_conninfo("", **parameters)
    factory, adapters = (PlainCursor[Any], None) if is_lent else (BinaryCursor, DEFAULTS)
    prepare_threshold = PREPARE_THRESHOLD if is_lent and not pooler else None
    try:
        conn: WatchedConnection = _connect_method(WatchedConnection, PlainConnection)(
            conninfo, autocommit=True, prepare_threshold=prepare_threshold, cursor_factory=factory, context=adapters
        )
    except psycopg.OperationalError as error:
        if POOLER_REFUSAL in str(error) and not pooler:
            raise PoolerRefusedError(_describe_refusal(error)) from None
        raise
    conn.is_lent, conn.is_pooled = is_lent, pooler
    _open_connections.add(conn)
    conn.watch(deadline_for_lease(lease) if limit is None else limit)
    try:
        if not pooler:
            _set_up_session(conn, is_lent=is_lent, prepared=prepared)
    except BaseException:
        conn.close()
        raise
    return conn


async def connect_async(dsn: str, *, lease: float, pooler: bool, name: str) -> WatchedAsyncConnection:
    """Open an asyncio connection for event handlers. It is cut if the server does not answer in time."""
    # The connection is in autocommit mode. A deadline watches it.
    conninfo = make_conninfo("", **build_parameters(dsn, lease=lease, pooler=pooler, name=name))
    prepare_threshold = None if pooler else PREPARE_THRESHOLD
    conn: WatchedAsyncConnection = await _connect_method(WatchedAsyncConnection, AsyncPlainConnection)(
        conninfo, autocommit=True, prepare_threshold=prepare_threshold, cursor_factory=AsyncPlainCursor[Any]
    )
    _open_connections.add(conn)
    conn.deadline = watch_connection(conn, deadline_for_lease(lease))
    if not pooler and conn.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        await conn.execute(load_query("untimed", "partbox"))
    return conn


def _connect_method(kind: Any, plain: Any) -> Any:
    # The function that the application has patched is returned if that is wanted.
    return super(plain, kind).connect if is_instrumented else kind.connect


def connect_plain(dsn: str, **more: Any) -> Conn:
    """Open a connection in autocommit mode with no time limit and no options, for a command or a few statements."""
    # The cursor class is passed too, because an application may have patched psycopg's default one.
    return PlainConnection.connect(dsn, autocommit=True, context=DEFAULTS, cursor_factory=PlainCursor[Any], **more)


def _set_up_session(conn: WatchedConnection, *, is_lent: bool, prepared: bool) -> None:
    if conn.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        conn.execute(load_query("untimed", "partbox"))
    if not is_lent:
        seeing, path, _ = conn.execute(load_query("session_begin", "partbox")).fetchone() or (False, None, None)
        # A session that does not see the option lost it to a pooler, which accepted the options and did not pass them
        # on. Other clients share such a session, so the `search_path` stays.
        conn.is_pooled = not seeing
        conn.search_path = path if seeing else None
    if prepared and conn.execute(load_query("is_planned", "partbox")).fetchone() == (True,):
        conn.prepared = OrderedDict()


def use_role_search_path(conn: Conn, *, here: bool = False) -> None:
    """Set the connection's `search_path` back to the default of the database role."""
    # This is for SQL and tables that an operator names. In a worker's session, names without a schema are PostgreSQL's
    # own only. `here` limits the change to the current transaction.
    if isinstance(conn, WatchedConnection) and conn.search_path is not None:
        conn.execute(load_query("search_path", "partbox"), {"path": conn.search_path, "here": here})


def _describe_refusal(error: psycopg.OperationalError) -> str:
    error_text = str(error).splitlines()[0].rpartition("FATAL:")[2].strip()
    return (
        f"a connection pooler, such as PgBouncer, refuses the options of a session ({error_text}): set "
        f"PARTBOX_POOLER=1 or "
        "give --pooler; `partbox doctor` then says which settings the role needs instead"
    )


def is_standby(dsn: str, *, lease: float, pooler: bool = False, name: str = "partbox") -> bool:
    """Return True if a standby server answers at this DSN, and False also if no server answers."""
    # Call it after `connect` found no primary.
    kwargs = build_parameters(dsn, lease=lease, pooler=pooler, name=name) | {"target_session_attrs": "standby"}
    try:
        connect_plain(make_conninfo("", **kwargs)).close()
    except psycopg.Error:
        return False
    return True


def check_server(conn: Conn, schema: str) -> None:
    """Raise `SchemaError` if this server is a standby, has only a copy of the schema, or denies reading record ids."""
    # The right primary is that of the cluster that wrote the cursors: a logical copy of the schema has the cursors of
    # another cluster. A lost witness of the marker is written again, if the role may do so and no transaction is open.
    row = conn.execute(load_query("marker", schema), {}).fetchone() or (True, False, False)
    standby, original, readable, *worn = row
    if standby:
        raise SchemaError("this server is a standby: workers poll the primary only (give its DSN)")
    if not readable:
        raise TransientSchemaError(
            f'no privilege on sequence "{schema}".record_id_seq: grant select on it to the worker role'
        )
    if not original:
        raise SchemaError(
            f'schema "{schema}" is a logical copy (dump or replication): its cursors belong to another cluster, and '
            f"workers would lose events; {format_command('rebase', schema)} adopts the schema"
        )
    if any(worn) and conn.info.transaction_status == TransactionStatus.IDLE:
        # Another session may have the privilege and write the witness.
        with suppress(errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction):
            conn.execute(load_query("mark", schema), {})


def _detach_inherited() -> None:
    """Disconnect a forked child from its parent's database connections, by replacing their sockets."""
    # The replacement is /dev/null. The child must neither use nor close its parent's connections: everything that it
    # writes reaches the parent's session, and libpq sends `Terminate` even when a connection is garbage-collected. The
    # file number stays taken because libpq may still write to it.
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for conn in list(_open_connections):
        with suppress(Error, OSError):
            os.dup2(nothing, conn.fileno(), inheritable=False)
    os.close(nothing)
    _open_connections.clear()


call_in_forked_children(_detach_inherited)
