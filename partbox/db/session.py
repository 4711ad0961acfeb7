"""Open a connection for one call of an operator, and check the schema."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import OperationalError
from psycopg.errors import ConnectionTimeout

from partbox.db.connect import PoolerRefusedError, connect, is_standby
from partbox.db.schema import migrate
from partbox.db.schema.migrate import list_subscription_names
from partbox.db.sql import Conn
from partbox.errors import SchemaError
from partbox.settings import Settings
from partbox.text.wording import format_no_subscription

# Seconds. A statement that reads or changes many rows needs longer than a worker's lease.
STATEMENT_TIMEOUT = 30.0


@contextmanager
def open_session(dsn: Callable[[], str], settings: Settings, name: str) -> Iterator[Conn]:
    """Open a connection to the primary server for the block. Raise `SchemaError` if the schema is unusable."""
    # The connection is in autocommit mode, after a check of the schema, and closed at the end. `name` appears in
    # `pg_stat_activity`. `SchemaError` is also raised if only a standby answers.
    with _connect_primary(dsn(), settings, name) as conn:
        migrate.check_schema_version(conn, settings.schema_name)
        yield conn


def _connect_primary(dsn: str, settings: Settings, name: str) -> Conn:
    # Raise `SchemaError` if only a standby answers.
    # Libpq says just that a session would be read-only, which may have other causes, so a second connection asks for a
    # standby.
    try:
        return connect(dsn, lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name=name)
    # A second attempt would wait, or be refused, once more.
    except (ConnectionTimeout, PoolerRefusedError):
        raise
    except OperationalError:
        if is_standby(dsn, lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name=name):
            text = f"this server is a standby: {name} runs on the primary only (give its DSN)"
            raise SchemaError(text) from None
        raise


def require_subscription(conn: Conn, schema: str, subscription: str) -> None:
    """Raise `SchemaError`, naming all subscriptions, if the subscription does not exist."""
    # Without this check a mistyped name would look like an empty subscription.
    names = list_subscription_names(conn, schema)
    if subscription not in names:
        raise SchemaError(format_no_subscription(subscription, schema, names))
