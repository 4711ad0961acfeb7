"""Explain database errors of a publish, whichever library raises them."""

from partbox.errors import PublishError, SchemaError

TRANSACTION_FAILED = "the transaction has failed: roll back to a savepoint or entirely, and try again"
_REFUSED_STATE, _UNWRITTEN_TEXT = "55000", "keeps out what is published"
_OF_LOST_SESSIONS = ("08", "57P", "40003")  # connection exceptions, shutdowns, unknown completion


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE code of a database error, or None if it has none."""
    # The error can be an exception of psycopg, psycopg2 or asyncpg, or of SQLAlchemy or Django with such an exception
    # inside.
    for each in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if isinstance(code, str):
            return code
    return None


def is_failed_transaction(error: BaseException) -> bool:
    """Return True if the error says that an earlier statement of the transaction had failed."""
    # PostgreSQL then refuses every statement.
    return sqlstate_of(error) == "25P02"


def is_refused_commit(error: BaseException) -> bool:
    """Return True if the error proves that PostgreSQL rolled back instead of committing."""
    # PostgreSQL answered a COMMIT with an error. An error of severity FATAL comes from a session that ends, perhaps
    # after its COMMIT. A pooler may report the codes of such errors as plain errors, so these codes do not count
    # either.
    code = sqlstate_of(error)
    return code is not None and not code.startswith(_OF_LOST_SESSIONS) and _severity_of(error) == "ERROR"


def _severity_of(error: BaseException) -> str | None:
    # PostgreSQL's severity is in English. It is None for an exception that is not from psycopg, psycopg2, asyncpg or
    # SQLAlchemy.
    for each in (error, getattr(error, "orig", None), error.__cause__):
        diag = getattr(each, "diag", None)
        found = getattr(diag, "severity_nonlocalized", None) or getattr(each, "severity_en", None)
        if isinstance(found, str):
            return found
    return None


class ErrorExplainer:
    """A context manager that replaces database exceptions by a SchemaError or PublishError with advice."""

    # It is a class, because every publish enters it, and a generator takes three times as long.

    __slots__ = ("_schema",)
    missing_sqlstates: tuple[str, ...] = ("42P01", "3F000", "42703")  # table, schema, column
    remedy = "is missing or not complete in this database: run `partbox init`"

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        if sqlstate_of(error) in self.missing_sqlstates:
            raise SchemaError(f"schema {self._schema!r} {self.remedy}") from error
        if is_failed_transaction(error):
            raise PublishError(TRANSACTION_FAILED) from error
        if sqlstate_of(error) == _REFUSED_STATE and _UNWRITTEN_TEXT in str(error):
            raise PublishError(
                f"a trigger or rule on a table of partbox {_UNWRITTEN_TEXT}: nothing was written, and the "
                "transaction has failed; `partbox doctor` names the trigger or rule: drop it, and try again"
            ) from error
