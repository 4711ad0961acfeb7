"""For Alembic: an operation that brings the schema up to date, and filters that keep autogenerate away from it.

`import partbox.alembic` in env.py registers `op.partbox_upgrade()`. It runs in the transaction that Alembic has open,
over whatever driver that uses, or is printed by `alembic upgrade --sql`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

from partbox.db.schema.grants import Roles, roles_of
from partbox.db.schema.lock_retry import BlockingTransaction, retry_while_busy
from partbox.db.schema.scripts import statements
from partbox.db.sql import plain_query
from partbox.errors import SchemaError

__all__ = ["include_name", "leaving_out"]

IncludeName = Callable[[str | None, Any, Mapping[str, Any]], bool]
BUSY = ("55P03", "40P01")  # SQLSTATE of a lock that was not to be had in time, and of a deadlock


@Operations.register_operation("partbox_upgrade")
class PartboxUpgrade(MigrateOperation):
    """Brings a schema to the version of the installed program, creating it if need be."""

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
        """Bring `schema` to the version of the installed partbox, and grant these roles what they need.

        Roles of earlier calls are granted what it adds; in a text for `--sql` they must be named again. SchemaError in
        a transaction that is not READ COMMITTED, and if somebody holds a lock that it needs for ten minutes.
        """
        operations.invoke(cls(schema, Roles(tuple(publisher_roles), tuple(worker_roles))))


@Operations.register_operation("partbox_downgrade")
class PartboxDowngrade(MigrateOperation):
    """Refuses: migrations go forward only."""

    @classmethod
    def partbox_downgrade(cls, operations: Operations) -> None:
        """Raise SchemaError, with what there is to do instead."""
        raise SchemaError(
            "the schema of partbox goes forward only: leave it as it is, for programs of before work on it unless a "
            "migration is marked as breaking; `drop schema partbox cascade` removes it with every event"
        )


@Operations.implementation_for(PartboxUpgrade)
def _upgrade(operations: Operations, operation: PartboxUpgrade) -> None:
    context = operations.migration_context
    if context.as_sql:
        for text in statements(operation.schema, operation.roles):
            context.impl.static_output(f"{text};")
        return
    conn = operations.get_bind()
    _check(conn)
    if _execute(conn, plain_query("migrate_found", operation.schema).decode()).scalar_one():
        retry_while_busy(
            operation.schema,
            lambda: _in_savepoint(conn, operation),
            lambda error: isinstance(error, DBAPIError) and _sqlstate(error) in BUSY,
            lambda: [
                BlockingTransaction._make(row)
                for row in _execute(conn, plain_query("migrate_holders", operation.schema).decode())
            ],
        )
    else:
        _run(conn, operation)  # the first one cannot be made in a savepoint, and nobody has a lock on what is not there


def _in_savepoint(conn: Connection, operation: PartboxUpgrade) -> None:
    try:
        savepoint = conn.begin_nested()
    except DBAPIError as error:
        if _sqlstate(error) == "25P01":  # there is no transaction
            raise SchemaError("these statements must run in one transaction, not in AUTOCOMMIT") from error
        raise
    with savepoint:  # its rollback gives the locks back, and publishers go on
        _run(conn, operation)


def _run(conn: Connection, operation: PartboxUpgrade) -> None:
    granted = roles_of(tuple(row) for row in _execute(conn, plain_query("roles_granted", operation.schema).decode()))
    for text in statements(operation.schema, granted | operation.roles):
        _execute(conn, text)


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def _execute(conn: Connection, text: str) -> CursorResult[Any]:
    return conn.exec_driver_sql(text, execution_options={"no_parameters": True})  # a % is a %


def _check(conn: Connection) -> None:
    """SchemaError where PostgreSQL would say less: a database that is none, or a snapshot older than the lock."""
    if conn.dialect.name != "postgresql":
        raise SchemaError(f"partbox needs PostgreSQL, and this connection is to {conn.dialect.name}")
    level = _execute(conn, "show transaction_isolation").scalar_one()
    if level != "read committed":
        raise SchemaError(
            f"the transaction of Alembic is {level.upper()}, and partbox_upgrade needs READ COMMITTED: set "
            "isolation_level of its engine in env.py"
        )


def leaving_out(*schemas: str, then: IncludeName | None = None) -> IncludeName:
    """A function for `include_name` of Alembic's `context.configure`: false for these schemas and all that is in them.

    Of the rest `then` decides, if it is given.
    """

    def include(name: str | None, kind: Any, parents: Mapping[str, Any]) -> bool:
        if (name if kind == "schema" else parents.get("schema_name")) in schemas:
            return False
        return then is None or then(name, kind, parents)

    return include


include_name: IncludeName = leaving_out("partbox")
"""For `include_name` of Alembic's `context.configure`, where the schema has its usual name."""
