"""Database errors that partbox explains, whichever library raises them."""

from partbox.errors import PublishError, SchemaError

TRANSACTION_FAILED = "the transaction has failed: roll back, to a savepoint or the whole, and try again"
_REFUSED_STATE, _UNWRITTEN_TEXT = "55000", "keeps out what is published"
_OF_LOST_SESSIONS = ("08", "57P", "40003")  # connection exceptions, shutdowns, an unknown completion


def sqlstate(error: BaseException) -> str | None:
    """The code of PostgreSQL: of psycopg and asyncpg, of psycopg2, of those that SQLAlchemy and Django wrap."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if isinstance(code, str):
            return code
    return None


def is_failed_transaction(error: BaseException) -> bool:
    """True if a statement was refused because an earlier one had failed."""
    return sqlstate(error) == "25P02"


def is_refused_commit(error: BaseException) -> bool:
    """True if PostgreSQL answered a COMMIT with an error, and so has rolled back.

    One of severity FATAL comes from a session that ends, after its COMMIT perhaps, and so may those of its codes that a
    pooler reports as plain errors.
    """
    code = sqlstate(error)
    return code is not None and not code.startswith(_OF_LOST_SESSIONS) and _severity(error) == "ERROR"


def _severity(error: BaseException) -> str | None:
    """The severity in English: of psycopg and psycopg2, of asyncpg, of those that SQLAlchemy wraps."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        diag = getattr(each, "diag", None)
        found = getattr(diag, "severity_nonlocalized", None) or getattr(each, "severity_en", None)
        if isinstance(found, str):
            return found
    return None


class ErrorExplainer:
    """Raises SchemaError or PublishError, with the remedy, instead of what the library raises, in a `with` block.

    No generator: every publish enters it, and this takes a third of the time.
    """

    __slots__ = ("_schema",)
    missing: tuple[str, ...] = ("42P01", "3F000", "42703")  # table, schema, column
    remedy = "is missing or not complete in this database: run `partbox init`"

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        if sqlstate(error) in self.missing:
            raise SchemaError(f"schema {self._schema!r} {self.remedy}") from error
        if is_failed_transaction(error):
            raise PublishError(TRANSACTION_FAILED) from error
        if sqlstate(error) == _REFUSED_STATE and _UNWRITTEN_TEXT in str(error):
            raise PublishError(
                f"a trigger or rule on a table of partbox {_UNWRITTEN_TEXT}: nothing was, and the "
                f"transaction has failed; "
                "`partbox doctor` names it: drop it, and try again"
            ) from error
