"""A connection for one call of an operator: opened, looked at, used, closed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import OperationalError
from psycopg.errors import ConnectionTimeout

from partbox.db.connect import PoolerRefused, connect, is_standby
from partbox.db.schema import migrate
from partbox.db.schema.migrate import subscriptions
from partbox.db.sql import Conn
from partbox.errors import SchemaError
from partbox.settings import Settings
from partbox.text.wording import no_subscription

STATEMENT_TIMEOUT = (
    30.0  # seconds a statement may take; who reads or changes many rows needs longer than a worker's lease
)


@contextmanager
def session(dsn: Callable[[], str], settings: Settings, name: str) -> Iterator[Conn]:
    """An autocommit connection to the primary, `name` in pg_stat_activity.

    SchemaError if there is but a standby, or the schema is none that we can work on.
    """
    with _connect_primary(dsn(), settings, name) as conn:
        migrate.check(conn, settings.schema_name)
        yield conn


def _connect_primary(dsn: str, settings: Settings, name: str) -> Conn:
    """libpq only says that a session would be read-only, which may have other causes, so a standby is asked for."""
    try:
        return connect(dsn, lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name=name)
    except (ConnectionTimeout, PoolerRefused):
        raise  # not to be waited for, or refused, twice
    except OperationalError:
        if is_standby(dsn, lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name=name):
            text = f"this server is a standby: {name} runs on the primary only (its DSN is needed)"
            raise SchemaError(text) from None
        raise


def require(conn: Conn, schema: str, subscription: str) -> None:
    """SchemaError, naming those that exist, unless `subscription` does: a mistyped one must not look empty."""
    names = subscriptions(conn, schema)
    if subscription not in names:
        raise SchemaError(no_subscription(subscription, schema, names))
