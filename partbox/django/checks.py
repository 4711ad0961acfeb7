"""System checks of the settings, the outbox, its database and its schema."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError

from partbox.db.schema.migrate import check_schema_version as check_schema
from partbox.django.conf import config
from partbox.django.database import connection
from partbox.django.loading import load_outbox
from partbox.errors import SchemaError
from partbox.outbox import Outbox

Messages = list[checks.CheckMessage]


def register() -> None:
    checks.register(check_outbox, "partbox")
    checks.register(check_database, checks.Tags.database)
    checks.register(check_requests, "partbox", deploy=True)


def check_outbox(app_configs: Sequence[Any] | None = None, **_: Any) -> Messages:
    """Return Django check messages if the outbox cannot be imported, or its database or schema is the wrong one."""
    # The database must be PostgreSQL, and the outbox must use the schema that is migrated.
    return [*_list_outbox_messages()]


def _list_outbox_messages() -> Iterator[checks.CheckMessage]:
    try:
        connection()
    except ImproperlyConfigured as error:
        yield checks.Error(str(error), id="partbox.E001")
    chosen = config()
    if not chosen.outbox:
        hint = 'Name it, such as PARTBOX = {"OUTBOX": "shop.outbox:outbox"}.'
        yield checks.Warning(
            "No outbox is named: there are no workers, admin actions or tasks.", hint, id="partbox.W001"
        )
        return
    try:
        outbox = load_outbox()
    # The application's code may raise anything at import.
    except Exception as error:
        text = str(error) if isinstance(error, ImproperlyConfigured) else f"{type(error).__name__}: {error}"
        yield checks.Error(f"The outbox {chosen.outbox!r} cannot be imported: {text}", id="partbox.E002")
        return
    schema = outbox.settings.schema_name
    if schema != chosen.schema:
        yield checks.Error(
            f"The outbox uses schema {schema!r}, but migrations and the admin use {chosen.schema!r}.",
            f'Set PARTBOX["SCHEMA"] to {schema!r}.',
            id="partbox.E003",
        )
    yield from _warn_of_transactions(outbox)


def _warn_of_transactions(outbox: Outbox) -> Iterator[checks.CheckMessage]:
    others = ("True", "sqlalchemy")
    names = [row.handler for row in outbox.handlers.build_table() if row.options.get("transactional") in others]
    if names:
        yield checks.Warning(
            f"Django's ORM cannot write in the transaction of these transactional handlers: {', '.join(names)}.",
            'Make them transactional="django"; or write with the connection or session they get, and silence this.',
            id="partbox.W004",
        )


def check_database(databases: Sequence[str] | None = None, **_: Any) -> Messages:
    """Return a Django warning if the database is unreachable, or its schema is of another version of partbox."""
    # A mismatch is only a warning, because `migrate` runs the checks before it migrates.
    chosen = config()
    if chosen.database not in (databases or ()):
        return []
    try:
        conn = connection()
        conn.ensure_connection()
        check_schema(conn.connection, chosen.schema)
    except ImproperlyConfigured:
        # `check_outbox` reports this.
        return []
    except SchemaError as error:
        return [checks.Warning(str(error), "Run manage.py migrate.", id="partbox.W002")]
    except DatabaseError as error:
        text = f"The database cannot be queried: {error}".strip()
        return [checks.Warning(text, "Start the database, or correct its alias in DATABASES.", id="partbox.W003")]
    return []


def check_requests(app_configs: Sequence[Any] | None = None, **_: Any) -> Messages:
    """Return a message for Django's `check --deploy` unless ATOMIC_REQUESTS gives each view a transaction."""
    given = settings.DATABASES.get(config().database, {})
    if given.get("ATOMIC_REQUESTS"):
        return []
    text = "Views can publish only inside transaction.atomic(): ATOMIC_REQUESTS is not set for this database."
    return [checks.Info(text, "Set it, or ignore this: publishing outside atomic() is refused.", id="partbox.I001")]
