"""Roles for tests of what each may do: one that publishes, one that works, one that is neither."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate


@dataclass(frozen=True, slots=True)
class Cast:
    """Names of roles that can log in to the database of `dsn`, its owner's."""

    dsn: str
    publisher: str
    worker: str
    stranger: str

    def of(self, name: str) -> str:
        """The DSN of who plays `name`."""
        return make_conninfo(self.dsn, user=getattr(self, name))


@contextmanager
def cast_of(dsn: str) -> Iterator[Cast]:
    """Roles of their own, granted what partbox grants; dropped with all that they have."""
    mark = uuid4().hex[:8]
    cast = Cast(dsn, f"publisher_{mark}", f"worker_{mark}", f"stranger_{mark}")
    names = [cast.publisher, cast.worker, cast.stranger]
    with psycopg.connect(dsn, autocommit=True) as conn:
        each_of(conn, "create role {} login", names)
        try:
            migrate(dsn, roles=Roles((cast.publisher,), (cast.worker,)))
            yield cast
        finally:
            each_of(conn, "drop owned by {} cascade", names)
            each_of(conn, "drop role {}", names)


def each_of(conn: psycopg.Connection[Any], statement: str, names: list[str]) -> None:
    for name in names:
        conn.execute(sql.SQL(statement).format(sql.Identifier(name)))


LOCKS = ("plan", "purge", "segments", "archive", "life", "migrate")


@contextmanager
def locks_held(dsn: str, schema: str = "partbox", subscription: str = "default") -> Iterator[None]:
    """A role without rights holds every advisory lock by the name of something that only one may do, in the forms that
    versions of before took."""
    with cast_of(dsn) as cast, psycopg.connect(cast.of("stranger"), autocommit=True) as stranger:
        for name in LOCKS:
            for of in (schema, f"{schema}.{subscription}"):
                stranger.execute("select pg_advisory_lock(hashtext(%s), hashtext(%s))", [f"partbox.{name}", of])
            stranger.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [f"partbox.{name} {schema}"])
        yield
