"""Alembic integration: an operation that upgrades the schema, and filters that hide the schema from autogenerate.

`import partbox.alembic` in env.py registers `op.partbox_upgrade()`. The operation runs in Alembic's open transaction,
with the driver that Alembic uses. `alembic upgrade --sql` prints it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

from partbox.db.schema.grants import Roles, roles_of
from partbox.db.schema.lock_retry import BlockingTransaction, retry_while_busy
from partbox.db.schema.scripts import build_statements
from partbox.db.sql import load_plain_query
from partbox.errors import SchemaError

__all__ = ["include_name", "leaving_out"]

IncludeName = Callable[[str | None, Any, Mapping[str, Any]], bool]
# The SQLSTATEs of a lock timeout and of a deadlock.
BUSY = ("55P03", "40P01")


@Operations.register_operation("partbox_upgrade")
class PartboxUpgrade(MigrateOperation):
    """The Alembic operation that creates a partbox schema or upgrades it to the installed version."""

    def __init__(self, schema: str, roles: Roles) -> None:
        self.schema = schema
        self.roles = roles

    @classmethod
    def partbox_upgrade(
        cls,
        operations: Operations,
        schema: str = "partbox",
        *,
        publisher_roles: Sequence[str] = (),
        worker_roles: Sequence[str] = (),
    ) -> None:
        """Upgrade `schema` to the installed version, and grant the roles their rights.

        Roles of earlier calls get the new rights too; for `--sql`, name them again. Raise SchemaError if the
        transaction is not READ COMMITTED, or if another session holds a needed lock for ten minutes."""
        operations.invoke(cls(schema, Roles(tuple(publisher_roles), tuple(worker_roles))))


@Operations.register_operation("partbox_downgrade")
class PartboxDowngrade(MigrateOperation):
    """The Alembic operation that refuses to downgrade a partbox schema, because migrations only go forward."""

    @classmethod
    def partbox_downgrade(cls, operations: Operations) -> None:
        """Raise a SchemaError that names alternatives, because a partbox schema cannot be downgraded."""
        raise SchemaError(
            "migrations of partbox only go forward: leave the schema as it is, because older programs work on it "
            "unless a migration is marked as breaking; `drop schema partbox cascade` removes the schema with all events"
        )


@Operations.implementation_for(PartboxUpgrade)
def _run_upgrade(operations: Operations, operation: PartboxUpgrade) -> None:
    context = operations.migration_context
    if context.as_sql:
        for text in build_statements(operation.schema, operation.roles):
            context.impl.static_output(f"{text};")
        return
    conn = operations.get_bind()
    _check_connection(conn)
    if _execute_text(conn, load_plain_query("migrate_found", operation.schema).decode()).scalar_one():
        retry_while_busy(
            operation.schema,
            lambda: _run_in_savepoint(conn, operation),
            lambda error: isinstance(error, DBAPIError) and _sqlstate_of(error) in BUSY,
            lambda: [
                BlockingTransaction._make(row)
                for row in _execute_text(conn, load_plain_query("migrate_holders", operation.schema).decode())
            ],
        )
    else:
        # The first migration cannot run in a savepoint, and nobody holds a lock on tables that do not exist yet.
        _run_statements(conn, operation)


def _run_in_savepoint(conn: Connection, operation: PartboxUpgrade) -> None:
    try:
        savepoint = conn.begin_nested()
    except DBAPIError as error:
        # There is no transaction.
        if _sqlstate_of(error) == "25P01":
            raise SchemaError("these statements must run in one transaction, not in AUTOCOMMIT") from error
        raise
    # A rollback of the savepoint releases the locks, so that publishers go on between two attempts.
    with savepoint:
        _run_statements(conn, operation)


def _run_statements(conn: Connection, operation: PartboxUpgrade) -> None:
    granted = roles_of(
        tuple(row) for row in _execute_text(conn, load_plain_query("roles_granted", operation.schema).decode())
    )
    for text in build_statements(operation.schema, granted | operation.roles):
        _execute_text(conn, text)


def _sqlstate_of(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def _execute_text(conn: Connection, text: str) -> CursorResult[Any]:
    # Without parameters, a % in the text stays a %.
    return conn.exec_driver_sql(text, execution_options={"no_parameters": True})


def _check_connection(conn: Connection) -> None:
    """Raise SchemaError if a migration cannot run on this connection."""
    # The database must be PostgreSQL, and the transaction must have no snapshot older than the migration's lock.
    # PostgreSQL's own error would say less.
    if conn.dialect.name != "postgresql":
        raise SchemaError(f"partbox needs PostgreSQL, and this connection is to {conn.dialect.name}")
    level = _execute_text(conn, "show transaction_isolation").scalar_one()
    if level != "read committed":
        raise SchemaError(
            f"the transaction of Alembic is {level.upper()}, and partbox_upgrade needs READ COMMITTED: set "
            "isolation_level of the engine in env.py"
        )


def leaving_out(*schemas: str, then: IncludeName | None = None) -> IncludeName:
    """Return an `include_name` function for `context.configure` that leaves the given schemas out of autogenerated
    migrations.

    Everything in these schemas is left out, too. `then` decides about everything else, if given."""

    def include(name: str | None, kind: Any, parents: Mapping[str, Any]) -> bool:
        if (name if kind == "schema" else parents.get("schema_name")) in schemas:
            return False
        return then is None or then(name, kind, parents)

    return include


# For `include_name` of Alembic's `context.configure`, if the schema has its usual name.
include_name: IncludeName = leaving_out("partbox")
