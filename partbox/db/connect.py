"""Connections of worker processes and supervisors, and what is checked on each new one."""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.db import migrate
from partbox.db.deadline import Watched, allowed
from partbox.db.sql import query
from partbox.errors import SchemaError, SettingsError

Dsn = str | Callable[[], str]


def resolve(dsn: Dsn | None) -> str:
    """A plain libpq DSN: calls a callable, starts the server of an `embedded:` one. SettingsError if there is none."""
    if callable(dsn):
        dsn = dsn()
    if not dsn:
        raise SettingsError("no database: set PARTBOX_DSN, pass --dsn, or Outbox('postgresql://…'); or use embedded:")
    if dsn.startswith("embedded:"):
        from partbox.db import embedded

        return embedded.resolve(dsn)
    return dsn


def parameters(dsn: str, *, lease: float, pooler: bool, name: str) -> dict[str, Any]:
    """Connection parameters of a worker: a dead peer is noticed within the lease, and no statement outlives it.

    With `pooler` no session option is sent: behind a transaction pooler it would leak into other clients or be
    refused; the role must carry them then.
    """
    whole = max(2, int(lease))
    given = conninfo_to_dict(dsn)
    merged: dict[str, Any] = {
        "application_name": name,
        "client_encoding": "utf8",
        "connect_timeout": whole,
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
        ).strip()
    return merged


def connect(
    dsn: str, *, lease: float, pooler: bool = False, name: str = "partbox", limit: float | None = None
) -> Watched:
    """A worker's connection, autocommit; nothing is ever prepared on it.

    It is cut when a statement is not answered within `limit` seconds: a little more than `lease`, unless given.
    """
    kwargs = parameters(dsn, lease=lease, pooler=pooler, name=name)
    conn = Watched.connect(make_conninfo("", **kwargs), autocommit=True, prepare_threshold=None)
    conn.watch(allowed(lease) if limit is None else limit)
    return conn


def is_standby(dsn: str, *, lease: float, pooler: bool = False, name: str = "partbox") -> bool:
    """Whether a standby answers where `connect` failed; False also if nobody does."""
    kwargs = parameters(dsn, lease=lease, pooler=pooler, name=name) | {"target_session_attrs": "standby"}
    try:
        psycopg.connect(make_conninfo("", **kwargs), autocommit=True).close()
    except psycopg.Error:
        return False
    return True


def check(conn: Connection[Any], schema: str) -> None:
    """SchemaError unless this is the primary of the cluster that the cursors were written in, and readable."""
    standby, original, readable = conn.execute(query("marker", schema), {}).fetchone() or (True, False, False)
    if standby:
        raise SchemaError("this server is a standby: workers poll the primary only (its DSN is needed)")
    if not readable:
        raise SchemaError(f'no privilege on sequence "{schema}".record_id_seq: grant select on it to the worker role')
    if not original:
        raise SchemaError(
            f'schema "{schema}" is a logical copy (dump or replication): its cursors are those of another cluster, and '
            f"workers would lose events; `{migrate.command('rebase', schema)}` adopts it"
        )
