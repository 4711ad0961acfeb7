"""Where a command's database is."""

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.db.connect import resolve
from partbox.settings import Settings

CONNECT_TIMEOUT = 10  # seconds; somebody is waiting at a terminal


def database(settings: Settings) -> str:
    """The DSN of the settings, resolved, with a limit to how long connecting may take unless it has one."""
    dsn = resolve(settings.dsn)
    return make_conninfo("", **{"connect_timeout": CONNECT_TIMEOUT, **conninfo_to_dict(dsn)})
