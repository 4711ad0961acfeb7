"""The database of a command."""

from psycopg.conninfo import make_conninfo

from partbox.db.connect import resolve
from partbox.settings import Settings
from partbox.text.dsn import parts, share

CONNECT_TIMEOUT = 10  # seconds; for all servers of the DSN: a user is waiting at a terminal


def database(settings: Settings) -> str:
    """The DSN of the settings, resolved, with a connect timeout unless it has one."""
    given = parts(resolve(settings.dsn))
    return make_conninfo("", **{"connect_timeout": str(share(CONNECT_TIMEOUT, given)), **given})
