"""Bring a schema to the version of this program, and check a schema that has another version.

Migrations go forward only. The header of each, `-- breaking: no` or `-- breaking: yes`, says whether older programs can
still work on the schema. The schema stores its version and that of its newest breaking migration, so that an old
program can judge a schema that is newer than itself."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import psycopg
from psycopg import sql as compose
from psycopg.errors import (
    DuplicateFunction,
    DuplicateObject,
    DuplicateTable,
    InsufficientPrivilege,
    InvalidFunctionDefinition,
    WrongObjectType,
)

from partbox.db.connect import TransientSchemaError, connect_plain
from partbox.db.schema import grants
from partbox.db.schema.grants import NO_ROLES, Roles
from partbox.db.schema.lock_retry import retry_while_locked
from partbox.db.sql import Conn, compose_text, fetch_own_rows, sql_folder
from partbox.db.type_conversion import OwnCursor
from partbox.errors import SchemaError
from partbox.text.dsn import strip_text
from partbox.text.wording import format_command, format_quoted_names

_HEADER = re.compile(r"^-- breaking: (yes|no)$", re.MULTILINE)
_OLDEST_SERVER = 15


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """A numbered SQL file that migrates the schema to one version.

    - The file is in `sql/migrations`.
    - `breaking`: older programs cannot work with the schema any more"""

    version: int
    name: str
    breaking: bool
    text: str


class SchemaVersion(NamedTuple):
    """The version of a database schema, or of a program that uses the schema.

    - The version is (0, 0) before the first migration."""

    newest: int  # the newest migration
    breaking: int  # the newest breaking migration
    inbox_only: bool = False  # the schema contains only an inbox


def migrate(dsn: str, schema: str = "partbox", *, writer_only: bool = False, roles: Roles = NO_ROLES) -> list[str]:
    """Create the outbox's schema in the database, or update it to the version of this program, in one transaction.

    Return the names of the migrations applied. `writer_only` creates it without a subscription. The `roles`, and all
    roles that had privileges before, get their privileges. Any number of processes may run this at once. Raise
    `SchemaError`, with nothing changed, if the schema is newer than this program, was not made by partbox, or has
    subscriptions despite `writer_only`, and if a role does not exist."""
    check_schema_name(schema)
    grants.check_roles(roles)
    with connect_plain(dsn) as conn, _explain_errors(schema):
        if not writer_only and _is_current(conn, schema, roles):
            return []
        return retry_while_locked(conn, schema, lambda: _migrate(conn, schema, None, writer_only, roles))


def find_outdated(dsn: str, schema: str = "partbox", *, roles: Roles = NO_ROLES) -> list[str]:
    """Return what `migrate` would add, in words: the names of migrations, or functions and privileges.

    The list is empty if there is nothing to do, also for a newer schema that this program can work with. Nothing is
    written. Raise `SchemaError` for a schema that this program can neither work with nor migrate."""
    check_schema_name(schema)
    grants.check_roles(roles)
    with connect_plain(dsn) as conn:
        version, ours = _load_version(conn, schema), program_version()
        if version is not None and not version.inbox_only and version.newest < ours.newest:
            _check_server(conn)
            _refuse_older(version, schema)
            return [each.name + " (breaking)" * each.breaking for each in _pending_migrations(version)]
        check_schema_version(conn, schema)
        is_newer = version is not None and version.newest > ours.newest
        return [] if is_newer or _is_current(conn, schema, roles) else ["functions or privileges of this version"]


def _is_current(conn: Conn, schema: str, roles: Roles) -> bool:
    # True if a migration would change nothing: these scripts have made the schema, it is as they left it, and the roles
    # have their privileges. A migration replaces every function, so programs that migrate at each start would write
    # more than a megabyte of WAL each time.
    version = _load_version(conn, schema)
    if version is None or version.inbox_only or version.newest != program_version().newest:
        return False
    granted = grants.find_granted_roles(conn, schema)
    if not granted.includes(roles):
        return False
    try:
        return fetch_own_rows(conn, "migrate_is_current", schema, scripts=_hash_scripts()) == [(True,)]
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InsufficientPrivilege):
        return False


@cache
def _hash_scripts() -> str:
    files = sorted(
        path for folder in ("migrations", "functions", "grants") for path in (sql_folder() / folder).glob("*.sql")
    )
    return sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


def migrate_in(conn: Conn, schema: str = "partbox", *, below: int | None = None) -> list[str]:
    """Create or update the schema in the open transaction of `conn`. Return the names of the applied migrations.

    - The transaction must be READ COMMITTED and outside of savepoints.
    - `below`: nothing happens if the version is at least this"""
    check_schema_name(schema)
    with _explain_errors(schema):
        if schema_exists(conn, schema):
            return retry_while_locked(conn, schema, lambda: _migrate(conn, schema, below, False, NO_ROLES))
        # The first migration cannot run in a savepoint: see finish.sql.
        return _migrate(conn, schema, below, False, NO_ROLES)


def _migrate(conn: Conn, schema: str, below: int | None, writer_only: bool, roles: Roles) -> list[str]:
    _check_server(conn)
    OwnCursor(conn).execute(fixed_script("begin", schema))
    since = _load_version(conn, schema) or SchemaVersion(0, 0)
    if below is not None and since.newest >= below:
        return []
    if since.newest > program_version().newest:
        raise SchemaError(
            f"schema {schema!r} is at version {since.newest}, newer than this program, which is for "
            f"version {program_version().newest}: upgrade partbox; nothing was changed"
        )
    _refuse_older(since, schema)
    if writer_only and since.newest and (names := list_subscription_names(conn, schema)):
        raise SchemaError(
            f"schema {schema!r} has subscriptions ({', '.join(names)}), and a writer-only outbox would lose their "
            "events: drop each one by `partbox subscription drop NAME` if nobody needs it; nothing was changed"
        )
    grants.check_roles_exist(conn, roles)
    # The roles are read before the functions are replaced, since the privileges on functions tell the roles.
    roles = grants.find_granted_roles(conn, schema) | roles
    for step in build_steps(schema, since, roles, writer_only=writer_only):
        OwnCursor(conn).execute(step)
    return [migration.name for migration in _pending_migrations(since)]


@contextmanager
def _explain_errors(schema: str) -> Iterator[None]:
    """Translate database errors of a migration in the block into a `SchemaError` that names the remedy."""
    # Such errors are a missing privilege, or an object that partbox did not make and that has one of its names.
    try:
        yield
    except InsufficientPrivilege as error:
        reason = (error.diag.message_primary or str(error)).removeprefix("partbox: ")
        remedy = error.diag.message_hint or "have the object's owner do this, or grant the privilege"
        raise SchemaError(f"schema {schema!r} was not changed: {reason}: {remedy}") from None
    except (DuplicateTable, DuplicateObject, DuplicateFunction, InvalidFunctionDefinition, WrongObjectType) as error:
        raise SchemaError(
            f"schema {schema!r} holds an object that partbox did not make ({error.diag.message_primary}): choose "
            "another name by --schema, or move the object elsewhere; nothing was changed"
        ) from None


def migrate_inbox(dsn: str, schema: str = "partbox") -> bool:
    """Create or update a schema with only an inbox (table of seen events). Return False for a whole outbox."""
    # With False, the schema is a whole outbox already.
    # The baseline makes a whole outbox, and then all parts but the inbox are taken away.
    # An inbox is the table of events that a consumer has seen.
    check_schema_name(schema)
    with connect_plain(dsn) as conn, _explain_errors(schema):
        return retry_while_locked(conn, schema, lambda: _migrate_inbox(conn, schema))


def _migrate_inbox(conn: Conn, schema: str) -> bool:
    _check_server(conn)
    OwnCursor(conn).execute(fixed_script("begin", schema))
    since = _load_version(conn, schema)
    if since is None:
        OwnCursor(conn).execute(compose_text(migrations()[0].text, schema))
        OwnCursor(conn).execute(fixed_script("inbox_only", schema))
    elif not since.inbox_only:
        return False
    for name in ("locked", "purge_rows", "purge_inbox"):
        text = (sql_folder() / "functions" / f"{name}.sql").read_text(encoding="utf-8")
        OwnCursor(conn).execute(compose_text(text, schema))
    OwnCursor(conn).execute(fixed_script("locks", schema))
    return True


def check_schema_version(conn: Conn, schema: str = "partbox") -> None:
    """Raise `SchemaError`, with the remedy, if this program cannot work with the schema."""
    # Nothing is written.
    check_schema_name(schema)
    _check_server(conn)
    version, ours = _load_version(conn, schema), program_version()
    if version is None:
        raise build_missing_error(conn, schema)
    if version.inbox_only:
        raise SchemaError(
            f"schema {schema!r} holds nothing but an inbox: run {format_command('init', schema)} to make it a "
            "whole outbox"
        )
    _refuse_older(version, schema)
    if version.newest < ours.newest:
        raise SchemaError(
            f"schema {schema!r} is at version {version.newest}, this program needs {ours.newest}: "
            f"run {format_command('migrate', schema)}"
        )
    if version.breaking > ours.newest:
        raise SchemaError(
            f"schema {schema!r} is at version {version.newest}, which needs a program for version {version.breaking} "
            f"or newer; this one is for version {ours.newest}: upgrade partbox"
        )


def build_missing_error(conn: Conn, schema: str) -> TransientSchemaError:
    """Return the error to raise for a missing schema, with the name of a similar schema."""
    # A missing table `meta` counts too.
    if fetch_own_rows(conn, "migrate_remains", schema) == [(True,)]:
        return TransientSchemaError(
            f"table meta of schema {schema!r} is missing, but its other tables exist: restore table meta"
        )
    others = [name for (name,) in fetch_own_rows(conn, "migrate_schemas", schema)]
    near = get_close_matches(schema, others, n=1)
    hint = (
        f", which has {near[0]!r} (did you mean it?)"
        if near
        else f", which has {format_quoted_names(others)}"
        if others
        else ""
    )
    return TransientSchemaError(
        f"schema {schema!r} does not exist in this database{hint}: run {format_command('init', schema)}"
    )


def is_inbox_only(conn: Conn, schema: str) -> bool:
    """Return whether the schema has only the table of events that a consumer has seen (an inbox)."""
    # Such a schema has no outbox.
    version = _load_version(conn, schema)
    return version is not None and version.inbox_only


@cache
def migrations() -> tuple[SchemaMigration, ...]:
    """Return all migrations of the schema in order."""
    # The first migration creates the schema of partbox 0.1.0.
    # The baseline is the first. The numbers have no gaps.
    paths = sorted((sql_folder() / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    found = tuple(_parse_migration(int(path.name[:4]), path.stem, path.read_text(encoding="utf-8")) for path in paths)
    if [migration.version for migration in found] != list(range(found[0].version, found[0].version + len(found))):
        raise ValueError(f"the numbers in sql/migrations have gaps: {[migration.name for migration in found]}")
    return found


def _parse_migration(version: int, name: str, text: str) -> SchemaMigration:
    header = _HEADER.search(text)
    if header is None:
        raise ValueError(f"migration {name} does not say `-- breaking: yes` or `-- breaking: no`")
    return SchemaMigration(version, name, header[1] == "yes", text)


def program_version() -> SchemaVersion:
    """Return the schema version that this program works with and migrates to."""
    found = migrations()
    return SchemaVersion(found[-1].version, max((each.version for each in found if each.breaking), default=0))


def _pending_migrations(since: SchemaVersion) -> list[SchemaMigration]:
    return [migration for migration in migrations() if migration.version > since.newest]


def build_steps(
    schema: str, since: SchemaVersion, roles: Roles, *, writer_only: bool = False
) -> Iterator[compose.Composed]:
    """Yield the SQL statements that migrate a schema from version `since` to this program's version."""
    # Every migration replaces all functions.
    for migration in _pending_migrations(since):
        first = migration is migrations()[0]
        # The first migration creates an inbox, so the existing one is renamed and moved back.
        if first and since.inbox_only:
            yield fixed_script("inbox_aside", schema)
        yield compose_text(migration.text, schema)
        if first and since.inbox_only:
            yield fixed_script("inbox_back", schema)
        if first and writer_only:
            yield fixed_script("writer_only", schema)
    for path in sorted((sql_folder() / "functions").glob("*.sql")):
        yield compose_text(path.read_text(encoding="utf-8"), schema)
    yield fixed_script("locks", schema)
    ours = program_version()
    yield fixed_script("finish", schema, version=str(ours.newest), breaking=str(ours.breaking))
    yield from grants.build_grants(schema, roles)
    yield fixed_script("state", schema, scripts=_hash_scripts())


def fixed_script(name: str, schema: str, /, **values: object) -> compose.Composed:
    """Return the SQL of a fixed script in `sql/migrations`, with its values filled in."""
    # A fixed script is no numbered migration.
    # The file is in `sql/migrations`. The schema's name and `values` (as literals) are filled in.
    text = (sql_folder() / "migrations" / f"{name}.sql").read_text(encoding="utf-8")
    return compose_text(text, schema, **{key: compose.Literal(value) for key, value in values.items()})


def _load_version(conn: Conn, schema: str) -> SchemaVersion | None:
    # None if the schema does not exist or contains nothing of partbox.
    if not schema_exists(conn, schema):
        return None
    try:
        ((newest, breaking, inbox_only),) = fetch_own_rows(conn, "migrate_versions", schema) or [(None, None, False)]
    # A table `meta` of another program has other columns or values.
    except (psycopg.errors.UndefinedColumn, psycopg.errors.InvalidTextRepresentation):
        newest, breaking, inbox_only = None, None, False
    if newest is None or breaking is None:
        raise TransientSchemaError(
            f"schema {schema!r} has a table meta that partbox did not make: choose another schema name"
        )
    return SchemaVersion(newest, breaking, inbox_only)


def _refuse_older(version: SchemaVersion, schema: str) -> None:
    first = migrations()[0].version
    if 0 < version.newest < first:
        raise SchemaError(
            f"schema {schema!r} is at version {version.newest}, which was made before partbox 0.1.0: bring it to "
            f"version {first} by the program that made it, or make an outbox under another name by `partbox init`; "
            "nothing was changed"
        )


def _check_server(conn: Conn) -> None:
    # The server must be new enough for partbox and the database encoded in UTF8. Raise `SchemaError` otherwise.
    major = conn.info.server_version // 10_000
    if major < _OLDEST_SERVER:
        raise SchemaError(f"partbox needs PostgreSQL {_OLDEST_SERVER} or newer, this server is {major}")
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"partbox needs a database with encoding UTF8, {conn.info.dbname!r} has {encoding}: "
            "create one with `create database ... encoding 'UTF8' template template0`"
        )


def check_schema_name(schema: str) -> None:
    """Raise `SchemaError` for a schema name that PostgreSQL or partbox cannot use."""
    # PostgreSQL would truncate a long name silently, and `$$` ends the text of a function. White space at an end of the
    # name is an error too, such as the line break at the end of a file.
    if schema != strip_text(schema):
        raise SchemaError(f"the schema name {schema!r} begins or ends with white space: remove it")
    if not 1 <= len(schema.encode("utf-8", "replace")) <= 63 or "\0" in schema or "$$" in schema:
        raise SchemaError(f"a schema name has 1 to 63 bytes, no NUL and no $$, not {schema!r}: choose another")


def schema_exists(conn: Conn, schema: str) -> bool:
    """Return whether the schema exists with a table `meta`."""
    # The table belongs to partbox or another program.
    return fetch_own_rows(conn, "migrate_found", schema) != [(False,)]


def list_subscription_names(conn: Conn, schema: str) -> list[str]:
    # A writer-only outbox has none.
    return [name for (name,) in fetch_own_rows(conn, "stats_subscriptions", schema)]
