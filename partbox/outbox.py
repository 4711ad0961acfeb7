"""The façade: where an application publishes and registers its handlers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, Unpack
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection

from partbox import settings
from partbox.codecs import Codec, Codecs
from partbox.db import connect
from partbox.errors import PublishError
from partbox.events import Event
from partbox.handlers import AnyHandler, Handlers, Options
from partbox.publish import Publisher

_NOT_GIVEN: Final = object()


class Outbox:
    """One outbox: a schema in a database.

    `dsn` is a libpq DSN, `embedded:` or `embedded:./folder`, or a callable that returns one each time a connection is
    opened (rotating passwords); None leaves it to the settings. `codecs` are those of content types beside JSON and
    octets. All other keywords are settings; a wrong one raises SettingsError.
    """

    def __init__(
        self,
        dsn: str | Callable[[], str] | None = None,
        *,
        codecs: Mapping[str, Codec] | None = None,
        **keywords: Any,
    ) -> None:
        self.settings = settings.load(dsn=None if callable(dsn) else dsn, **keywords)
        self.codecs = Codecs(codecs)
        self.handlers = Handlers()
        self._dsn = dsn if callable(dsn) else self.settings.dsn
        self._publisher = Publisher(self.settings.schema_name, self.codecs, self.settings.max_payload)

    @property
    def dsn(self) -> str:
        """A DSN that libpq understands, as of now: calls a callable, starts the server of an `embedded:` one."""
        return connect.resolve(self._dsn)

    def publish(
        self, conn: Connection[Any], event: Event | str | Enum, payload: Any = _NOT_GIVEN, **fields: Any
    ) -> UUID | None:
        """Publish an Event, or `(type, payload, **fields)` of one, in the transaction of `conn`; the event's id.

        Raises PublishError before anything is written; the connection is left as it was.
        """
        return self._publisher.publish(conn, _event(event, payload, fields))

    def publish_many(self, conn: Connection[Any], events: Iterable[Event]) -> list[UUID | None]:
        """Publish the events in their order, all or none, in the transaction of `conn`; their ids in that order."""
        return [*self._publisher.publish_many(conn, events)]

    async def publish_async(
        self, conn: AsyncConnection[Any], event: Event | str | Enum, payload: Any = _NOT_GIVEN, **fields: Any
    ) -> UUID | None:
        """`publish` on an asynchronous connection."""
        return await self._publisher.publish_async(conn, _event(event, payload, fields))

    async def publish_many_async(self, conn: AsyncConnection[Any], events: Iterable[Event]) -> list[UUID | None]:
        """`publish_many` on an asynchronous connection."""
        return [*await self._publisher.publish_many_async(conn, events)]

    @contextmanager
    def transaction(self) -> Iterator[Connection[Any]]:
        """A transaction on a connection of its own, committed at the end unless an exception leaves the block."""
        with psycopg.connect(self.dsn, autocommit=True) as conn, conn.transaction():
            yield conn

    def on(
        self,
        event_type: str | Enum,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Decorates the handler of these events; `"*"` is every type, None any aggregate type."""
        return self.handlers.on(event_type, aggregate_type, subscription, **options)

    def register(
        self,
        handler: Any,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> None:
        """Registers a function, or an object with `handle` that may carry its types itself."""
        self.handlers.register(handler, event_type, aggregate_type, subscription, **options)


def _event(event: Event | str | Enum, payload: Any, fields: dict[str, Any]) -> Event:
    if not isinstance(event, Event):
        if payload is _NOT_GIVEN:
            raise PublishError(f"{event!r} has no payload: give one (None is JSON null), or an Event")
        return Event(event, payload, **fields)
    if payload is not _NOT_GIVEN or fields:
        raise PublishError("an Event already has its payload and fields: give them to the Event")
    return event
