"""Database errors that partbox explains, whichever library raises them."""

from collections.abc import Iterator
from contextlib import contextmanager

from partbox.errors import PublishError, SchemaError

FAILED = "the transaction has failed: roll back, to a savepoint or the whole, and try again"

_MISSING = ("42P01", "3F000", "42703")  # table, schema, column
_IN_FAILED_TRANSACTION = "25P02"


def sqlstate(error: BaseException) -> str | None:
    """The code of PostgreSQL: of psycopg and asyncpg, of psycopg2, of those that SQLAlchemy and Django wrap."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if isinstance(code, str):
            return code
    return None


def is_failed_transaction(error: BaseException) -> bool:
    """True if a statement was refused because an earlier one had failed."""
    return sqlstate(error) == _IN_FAILED_TRANSACTION


@contextmanager
def explained(schema: str) -> Iterator[None]:
    """Raises SchemaError or PublishError, with the remedy, instead of what the library raises."""
    try:
        yield
    except Exception as error:
        if sqlstate(error) in _MISSING:
            raise SchemaError(
                f"schema {schema!r} is missing or not complete in this database: run `partbox init`"
            ) from error
        if is_failed_transaction(error):
            raise PublishError(FAILED) from error
        raise
