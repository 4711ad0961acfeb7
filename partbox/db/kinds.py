"""The types of connections that events can be published on."""

from typing import Any, Protocol


class AnySync(Protocol):
    """A connection or session of psycopg, SQLAlchemy, SQLModel or Django, or one that an adapter is registered for."""

    def commit(self) -> None: ...


class _Commits(Protocol):
    async def commit(self) -> None: ...


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, by two of its methods."""

    def is_in_transaction(self) -> bool: ...

    async def fetch(self, query: Any, /, *args: Any) -> Any: ...


AnyAsync = _Commits | AsyncpgConnection
"""A connection or session of psycopg, SQLAlchemy or asyncpg, or one that an adapter is registered for."""
