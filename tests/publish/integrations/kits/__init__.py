"""Every pair of a library and a driver, behind one asynchronous face: what the contract of publishing is tried with.

A kit opens transactions and savepoints as its library does, executes what it is given, and publishes. What is
synchronous is called as it is, in the event loop's thread.
"""

from kits.kit import Kit, opened, parts
from kits.of_asyncpg import Asyncpg, AsyncpgPool, connect_asyncpg
from kits.of_django import Django, DjangoOther, configure_django, install_django
from kits.of_psycopg import AsyncPsycopg, AsyncPsycopgPool, Psycopg, PsycopgPool
from kits.of_sqlalchemy import (
    AsyncpgCore,
    AsyncpgSession,
    AsyncPsycopgCore,
    AsyncPsycopgSession,
    AsyncScopedSession,
    AsyncSqlModel,
    Psycopg2Core,
    Psycopg2Session,
    PsycopgCore,
    PsycopgSession,
    ScopedSession,
    SqlModel,
    async_engine_of,
    engine_of,
)

__all__ = [
    "KITS", "LIKE_ANOTHER", "AsyncPsycopg", "Asyncpg", "Kit", "Psycopg", "async_engine_of", "configure_django",
    "connect_asyncpg", "engine_of", "install_django", "opened", "parts",
]  # fmt: skip

KITS: list[type[Kit]] = [
    Psycopg, PsycopgPool, AsyncPsycopg, AsyncPsycopgPool, PsycopgSession, Psycopg2Session, ScopedSession, SqlModel,
    PsycopgCore, Psycopg2Core, AsyncpgSession, AsyncPsycopgSession, AsyncScopedSession, AsyncSqlModel,
    AsyncpgCore, AsyncPsycopgCore, Django, DjangoOther, Asyncpg, AsyncpgPool,
]  # fmt: skip
LIKE_ANOTHER: set[type[Kit]] = {
    PsycopgPool, AsyncPsycopgPool, ScopedSession, SqlModel, Psycopg2Core, AsyncScopedSession, AsyncSqlModel,
    AsyncpgCore, AsyncPsycopgCore, DjangoOther, AsyncpgPool,
}  # fmt: skip
"""Another door to the library and the driver of one of the others: their tests are thorough."""
