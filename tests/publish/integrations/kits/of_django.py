"""Django's connections, by the proxy and by the wrapper of another alias."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from unittest import mock

from django_runs import configure_django

from kits.kit import Kit, parts


def install_django(dsn: str) -> Any:
    """Connections of Django to this database, in the places of `default` and `other`; they must be closed."""
    configure_django()
    from django.db import connections
    from django.db.utils import ConnectionHandler

    found = parts(dsn)
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "database": "NAME"}
    given = {"ENGINE": "django.db.backends.postgresql", **{names[key]: each or "" for key, each in found.items()}}
    handler = ConnectionHandler({"default": given, "other": dict(given)})
    for alias in ("default", "other"):
        connections[alias] = handler[alias]
    return connections


class Django(Kit):
    """`django.db.connection`."""

    name = "django"
    tells = ("after_commit",)
    alias: ClassVar[str] = "default"

    async def open(self) -> None:
        self.closing.enter_context(mock.patch.dict(os.environ, {"DJANGO_ALLOW_ASYNC_UNSAFE": "1"}))
        self.connections = install_django(self.dsn)
        self.closing.callback(self.connections.close_all)

    def given(self) -> Any:
        from django.db import connection

        return connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            yield self.given()

    @asynccontextmanager
    async def savepoint(self, tx: Any) -> AsyncIterator[Any]:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            yield tx

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[Any]:
        yield self.given()

    async def execute(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        with tx.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def state(self, tx: Any) -> Any:
        return (
            tx.get_autocommit(),
            tx.in_atomic_block,
            tx.needs_rollback,
            tx.connection.row_factory,
            len(tx.savepoint_ids),
        )


class DjangoOther(Django):
    """The wrapper behind another alias."""

    name = "django-using"
    alias = "other"

    def given(self) -> Any:
        return self.connections["other"]
