"""The DSN of a test database as a URL, in the form that a library takes."""

from typing import Literal, get_args
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from partbox.errors import PartboxError

Library = Literal["asyncpg", "psycopg", "psycopg2", "sqlalchemy", "sqlalchemy+asyncpg", "sqlalchemy+psycopg2"]

# asyncpg takes any other parameter of libpq for a setting of the server, and SQLAlchemy hands it over as a keyword.
_OF_ASYNCPG = ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey")
_DIALECTS = {"asyncpg": "postgresql+asyncpg", "psycopg2": "postgresql+psycopg2", "sqlalchemy": "postgresql+psycopg"}


def url_of(dsn: str, library: Library) -> str:
    """Return the URL of the database of `dsn` in the form that a library takes.

    "sqlalchemy" is SQLAlchemy over psycopg; over the other drivers it is "sqlalchemy+asyncpg" and
    "sqlalchemy+psycopg2"."""
    if library not in get_args(Library):
        raise PartboxError(f"there is no URL for {library!r}: name one of {', '.join(get_args(Library))}")
    outer, _, driver = library.partition("+")
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    user, password, database = (parts.pop(name, "") for name in ("user", "password", "dbname"))
    if "asyncpg" in library:
        parts = {name: value for name, value in parts.items() if name in _OF_ASYNCPG}
    if driver == "asyncpg" and (mode := parts.pop("sslmode", None)) is not None:
        parts["ssl"] = mode
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    scheme = _DIALECTS[driver or outer] if outer == "sqlalchemy" else "postgresql"
    query = urlencode(parts, quote_via=quote, safe="")
    return f"{scheme}://{who}{'@' if who else ''}/{quote(database, safe='')}{'?' if query else ''}{query}"
