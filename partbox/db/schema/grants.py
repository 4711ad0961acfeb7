"""Grant publishers and workers the privileges that they need, and no others.

The roles are not stored. A role that may execute `publish` is a publisher, and a role that may execute `save` is a
worker, by name. So a later migration grants the same roles its additions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from psycopg import sql as compose

from partbox.db.sql import Conn, compose_text, fetch_own_rows, sql_folder
from partbox.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Roles:
    """The database roles that get privileges to publish events or to run workers.

    - The roles are named as in `pg_roles`."""

    publishers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.publishers or self.workers)

    def includes(self, other: "Roles") -> bool:
        """Return True if all roles of `other` are among the roles."""
        return {*other.publishers} <= {*self.publishers} and {*other.workers} <= {*self.workers}

    def __or__(self, other: "Roles") -> "Roles":
        return Roles(
            tuple(dict.fromkeys((*self.publishers, *other.publishers))),
            tuple(dict.fromkeys((*self.workers, *other.workers))),
        )


NO_ROLES = Roles()


def check_roles(roles: Roles) -> None:
    """Raise `SchemaError` for role names that PostgreSQL cannot have."""
    # PostgreSQL would truncate a long name silently.
    for name in (*roles.publishers, *roles.workers):
        if not _is_role_name(name):
            raise SchemaError(f"a role name has 1 to 63 bytes of text and no NUL, not {name!a}: choose another")


def check_roles_exist(conn: Conn, roles: Roles) -> None:
    """Raise `SchemaError` if one of the roles does not exist in the database."""
    names = [*roles.publishers, *roles.workers]
    missing = [name for (name,) in fetch_own_rows(conn, "roles_missing", "partbox", names=names)]
    if missing:
        raise SchemaError(
            f"role {missing[0]!r} does not exist: create it first (`create role`), with the same spelling; "
            "nothing was changed"
        )


def find_granted_roles(conn: Conn, schema: str) -> Roles:
    """Return the publisher and worker roles that already have privileges on the schema."""
    # A role that was dropped, or revoked the privilege, is forgotten.
    # The privileges were granted before.
    return roles_of(fetch_own_rows(conn, "roles_granted", schema))


def roles_of(rows: Iterable[tuple[Any, ...]]) -> Roles:
    """Build the sets of publisher and worker roles from rows of (kind, name)."""
    # The query `roles_granted` returns these rows.
    found = list(rows)
    publishers, workers = (tuple(role for kind, role in found if kind == wanted) for wanted in ("publisher", "worker"))
    return Roles(publishers, workers)


def build_grants(schema: str, roles: Roles) -> Iterator[compose.Composed]:
    """Yield SQL statements that grant each role its privileges and revoke the privileges of all others."""
    # The privileges are on the schema. The statements can be repeated without harm.
    if roles:
        yield _build_grant("closed", schema)
    for role in roles.publishers:
        yield _build_grant("publisher", schema, role)
    for role in roles.workers:
        yield _build_grant("worker", schema, role)


def _build_grant(name: str, schema: str, role: str = "") -> compose.Composed:
    text = (sql_folder() / "grants" / f"{name}.sql").read_text(encoding="utf-8")
    return compose_text(text, schema, role=compose.Identifier(role))


def _is_role_name(name: str) -> bool:
    try:
        return 1 <= len(name.encode()) <= 63 and "\0" not in name
    except UnicodeEncodeError:
        return False
