"""The façade: where an application publishes and registers its handlers."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Unpack
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection

from partbox import settings
from partbox.codecs import Codec, Codecs
from partbox.db import connect
from partbox.db.migrate import migrate
from partbox.errors import PublishError
from partbox.events import Event
from partbox.handlers import AnyHandler, Handlers, Options
from partbox.publish import Publisher
from partbox.supervisor import EmbeddedWorker, Supervisor, run

_NOT_GIVEN: Final = object()

log = logging.getLogger("partbox")


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A DSN that stays; a class and not a closure, so that it travels to processes."""

    dsn: str

    def __call__(self) -> str:
        return self.dsn


@dataclass(frozen=True, slots=True)
class _Carried:
    """Handlers and codecs as they are here, carried to a worker process."""

    handlers: Handlers
    codecs: Codecs

    def __call__(self) -> tuple[Handlers, Codecs]:
        return self.handlers, self.codecs


@dataclass(frozen=True, slots=True)
class _Imported:
    """The same, by importing the outbox there."""

    source: "Callable[[], Outbox]"

    def __call__(self) -> tuple[Handlers, Codecs]:
        outbox = self.source()
        return outbox.handlers, outbox.codecs


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
        self._migrated: set[Callable[[], str]] = set()
        self._publisher = Publisher(self.settings.schema_name, self.codecs, self.settings.max_payload)

    @property
    def dsn(self) -> str:
        """A DSN that libpq understands, as of now: calls a callable, starts the server of an `embedded:` one."""
        return self._resolve()()

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

    def worker(self, *, concurrency: int | None = None, subscription: str = "default") -> EmbeddedWorker:
        """A worker in this process: `with outbox.worker(): …`, `async with`, or its `start` and `stop`."""
        return EmbeddedWorker(
            self.settings,
            self.handlers,
            self.codecs,
            self._resolve(),
            subscription=subscription,
            concurrency=concurrency or self.settings.concurrency,
        )

    def drain(self, *, timeout: float = 60.0, concurrency: int | None = None, subscription: str = "default") -> bool:
        """Deliver what is due, in this process, and return; False when `timeout` seconds did not suffice."""
        with self.worker(concurrency=concurrency, subscription=subscription) as worker:
            return worker.wait_until_empty(timeout)

    def supervisor(
        self,
        *,
        processes: int | None = None,
        concurrency: int | None = None,
        subscription: str = "default",
        source: "Callable[[], Outbox] | None" = None,
        dsn: str | None = None,
    ) -> Supervisor:
        """A node of worker processes, not started yet. They get their handlers from here, or from `source()` there."""
        return Supervisor(
            self.settings,
            _Imported(source) if source else _Carried(self.handlers, self.codecs),
            self._resolve(dsn),
            processes=processes or self.settings.processes,
            concurrency=concurrency or self.settings.concurrency,
            subscription=subscription,
        )

    def run(
        self,
        *,
        processes: int | None = None,
        concurrency: int | None = None,
        subscription: str = "default",
        until_empty: bool = False,
        schema: str | None = None,
        dsns: Sequence[str] = (),
        source: "Callable[[], Outbox] | None" = None,
    ) -> int:
        """Deliver by worker processes until SIGTERM or SIGINT; the exit code.

        With several `dsns`, so many processes for each. `until_empty` ends it when everything that is due is delivered.
        """
        if schema is not None:
            self.settings = self.settings.replace(schema=schema)
        if not self.settings.enabled:
            log.warning("enabled is false: nothing is delivered; publishing works")
            return 0
        nodes = [
            self.supervisor(
                processes=processes, concurrency=concurrency, subscription=subscription, source=source, dsn=dsn
            )
            for dsn in dsns or (None,)
        ]
        return run(nodes, until_empty=until_empty)

    def _resolve(self, dsn: str | None = None) -> Callable[[], str]:
        """What gives the DSN of each new connection; an embedded server is started, and its schema made, here."""
        chosen = dsn or self._dsn
        given = chosen if callable(chosen) else _Fixed(connect.resolve(chosen))
        if self._migrates(chosen) and given not in self._migrated:
            migrate(given(), self.settings.schema_name)
            self._migrated.add(given)
        return given

    def _migrates(self, dsn: str | Callable[[], str] | None) -> bool:
        """`auto_migrate`; unless it is set, true for an embedded server, which is nobody else's."""
        if self.settings.origins["auto_migrate"] != "default":
            return self.settings.auto_migrate
        return isinstance(dsn, str) and dsn.startswith("embedded:")

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
