"""The façade: where an application publishes and registers its handlers.

An application that only publishes loads nothing that delivers or operates: a method imports what it alone needs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from psycopg import AsyncConnection, Connection

from partbox.classes import Instance
from partbox.codecs import Codec, Codecs
from partbox.db.schema.outbox_database import OutboxDatabase
from partbox.db.statements import AnyAsync, AnySync, AsyncpgConnection
from partbox.errors import RegistrationError
from partbox.events import Event, upcasts
from partbox.events.event import NOT_GIVEN, EventFields
from partbox.handlers import Handlers, Options
from partbox.handlers.registry import Registrar
from partbox.hosts import refuse_green_threads
from partbox.observe import Observer, Observers
from partbox.observe.metrics.registry import ApplicationRegistry, Display
from partbox.operations import Operations, arguments
from partbox.platform import library, require_workers
from partbox.publish import Bell, EmbeddedWorkers, Moment, Publisher, PublishHooks, Scope, cancellation

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from partbox.dashboard import May, MountedPage
    from partbox.operations.aio import AsyncOperations
    from partbox.supervisor.embedded import EmbeddedWorker
    from partbox.supervisor.nodes import Nodes
    from partbox.supervisor.purging import Purging
    from partbox.supervisor.supervisor import Supervisor
    from partbox.tasks import Task

P = ParamSpec("P")
R = TypeVar("R")
AnyUpcast = TypeVar("AnyUpcast", bound=Callable[[Any], Any])
Hook = TypeVar("Hook", bound=Callable[[list[Event]], Any])
AnyObserver = TypeVar("AnyObserver", bound=Observer)


class Outbox(Registrar, Operations):
    """One outbox: a schema in a database.

    `dsn` is a libpq DSN, `embedded:` or `embedded:./folder`, or a callable that returns one each time a connection is
    opened (rotating passwords); None leaves it to the settings. `codecs` are those of content types beside JSON and
    octets. `registry`: where to show how much was published, and the metrics of workers in this process. All other
    keywords are settings; a wrong one raises SettingsError.
    """

    def __init__(
        self,
        dsn: str | Callable[[], str] | None = None,
        *,
        codecs: Mapping[str, Codec] | None = None,
        registry: "CollectorRegistry | None" = None,
        **keywords: Any,
    ) -> None:
        from partbox import settings
        from partbox.observe.logs.setup import warn_of_strays

        loaded = settings.load(dsn=None if callable(dsn) else dsn, **keywords)
        warn_of_strays()
        self.handlers = Handlers()
        Operations.__init__(self, dsn if callable(dsn) else loaded.dsn, loaded)
        self.codecs = Codecs(codecs)
        self._workers = EmbeddedWorkers()
        self._hooks = PublishHooks()
        self._publisher = Publisher(
            self.settings.schema_name,
            self.codecs,
            self.settings.max_payload,
            self._hooks,
            self._workers,
            bell=Bell(self.settings.bell != "off"),
        )
        self._shown = ApplicationRegistry(registry, self.settings.metrics_prefix)
        if registry is not None:
            self.observe(self._shown)

    @property
    def _registry(self) -> Handlers:
        return self.handlers

    def _limitable(self, subscription: str) -> set[str]:
        return self.handlers.limitable_names(subscription)

    def _configure(self, database: OutboxDatabase) -> None:
        """Take over the database and settings of the command line in a worker process, which has imported it."""
        self._database = database
        self._publisher = replace(
            self._publisher,
            schema=self.settings.schema_name,
            max_payload=self.settings.max_payload,
            bell=Bell(self.settings.bell != "off"),
        )

    def publish(
        self,
        conn: AnySync,
        event: Event | str | Enum | Instance,
        payload: Any = NOT_GIVEN,
        **fields: Unpack[EventFields],
    ) -> UUID | None:
        """Publish an instance of a class under `@partbox.event`, an Event, or `(type, payload)` of one; the event's id.

        In the transaction of `conn`: a connection of psycopg; a Session, scoped_session or Connection of SQLAlchemy, a
        Session of SQLModel; `django.db.connection` or `connections[alias]`; or what an adapter is registered for.
        `fields` are those of `Event`, which has its own already. None if a `before_publish` hook suppressed it, or its
        idempotency key was used before. Raises PublishError before anything is written; the connection is left as it
        was.
        """
        return self._publisher.publish(conn, event, payload, fields)

    def publish_many(self, conn: AnySync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """Publish Events and instances of event classes in their order, all or none, in the transaction of `conn`.

        Their ids in that order: None stands for an event whose idempotency key was used before; the list is empty if a
        `before_publish` hook suppressed it.
        """
        return self._publisher.publish_many(conn, events)

    async def publish_async(
        self,
        conn: AnyAsync,
        event: Event | str | Enum | Instance,
        payload: Any = NOT_GIVEN,
        **fields: Unpack[EventFields],
    ) -> UUID | None:
        """`publish` on an asynchronous connection.

        Of psycopg or asyncpg; an AsyncSession, async_scoped_session or AsyncConnection of SQLAlchemy.
        """
        return await self._publisher.publish_async(conn, event, payload, fields)

    async def publish_many_async(self, conn: AnyAsync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """`publish_many` on an asynchronous connection."""
        return await self._publisher.publish_many_async(conn, events)

    def cancel(self, conn: AnySync, event: Event | UUID | str | None = None, *, key: str | None = None) -> bool:
        """Cancel a delayed event, named by itself, its id or its idempotency key, in the transaction of `conn`.

        True: it came in time. Once the transaction has committed, no handler of any subscription has run the event, or
        will; a rollback takes it back. False: its time has come, so it has run or will, whatever became of it; or there
        is no such event, or none that is delayed. `conn` and errors are those of `publish`.
        """
        return cancellation.cancel(conn, self.settings.schema_name, event, key)

    async def cancel_async(
        self, conn: AnyAsync, event: Event | UUID | str | None = None, *, key: str | None = None
    ) -> bool:
        """`cancel` on an asynchronous connection."""
        return await cancellation.cancel_async(conn, self.settings.schema_name, event, key)

    def upcast(self, cls: type[Instance], *, from_version: int) -> Callable[[AnyUpcast], AnyUpcast]:
        """Decorates what turns the stored payload of a version into that of the next: `upcast(payload)` returns it.

        Whoever asks for the class gets payloads of older versions through it, step by step, each a dict as JSON has it.
        RegistrationError if the class is no event, or has a version that this does not lead to.
        """

        def register(function: AnyUpcast) -> AnyUpcast:
            upcasts.add(self.codecs.upcasts, cls, from_version, function)
            return function

        return register

    def before_publish(self, hook: Hook) -> Hook:
        """Has each batch pass by `hook(events)`, which returns the list to publish (or None: as it is now).

        A batch is what one call publishes; an empty list suppresses it, an exception ends the call with nothing
        written. Hooks are called in the order of their registration; `async def` ones only by the asynchronous calls.
        """
        self._hooks.register(Moment.BEFORE_PUBLISH, hook)
        return hook

    def after_publish(self, hook: Hook) -> Hook:
        """Calls `hook(events)` when a batch has been written, and may still be rolled back; its errors are logged."""
        self._hooks.register(Moment.AFTER_PUBLISH, hook)
        return hook

    def after_commit(self, hook: Hook) -> Hook:
        """Calls `hook(events)` for each batch whose transaction has committed; its errors are logged.

        psycopg and asyncpg do not tell how a transaction ended: publishing on their connections is refused outside
        `outbox.transaction(conn)` then.
        """
        self._hooks.register(Moment.AFTER_COMMIT, hook)
        return hook

    def after_rollback(self, hook: Hook) -> Hook:
        """Calls `hook(events)` for each batch that was rolled back, by a savepoint or the whole; as `after_commit`.

        If a COMMIT was cancelled or cut off before its answer, nobody knows how it ended: neither hook is called.
        Django does not tell of it: publishing on its connections is refused then.
        """
        self._hooks.register(Moment.AFTER_ROLLBACK, hook)
        return hook

    def purger(self) -> "Purging":
        """Purges every `purge_interval` in a thread of this process: `with outbox.purger(): …`, or `start` and `stop`.

        For applications that only publish; workers do it by themselves.
        """
        from partbox.supervisor.purging import Purging

        return Purging(self.settings, self._database.resolve())

    def transaction(self, conn: Connection[Any] | AsyncConnection[Any] | AsyncpgConnection | None = None) -> Scope:
        """The outermost transaction of `conn`, or one on a connection of its own: `with outbox.transaction() as tx:`.

        For psycopg and asyncpg, which do not tell how a transaction ends; others need none. Yields the connection;
        `async with` does so with an asynchronous one. Committed at the end unless an exception leaves the block. Then
        `after_commit` and `after_rollback` hooks are called, and a commit wakes the workers that this outbox has in
        this process. PublishError if a transaction is open already; psycopg.OperationalError if the connection is lost,
        also if that error was caught in the block.
        """
        return Scope(conn, lambda: self.dsn, pooler=self.settings.pooler)

    @property
    def aio(self) -> "AsyncOperations":
        """The operators' verbs for async code, `await outbox.aio.dead.list()`, each run in a thread."""
        from partbox.operations.aio import AsyncOperations

        return AsyncOperations(self)

    def worker(
        self, *, concurrency: int | None = None, subscription: str = "default", loop: Literal["own"] | None = None
    ) -> "EmbeddedWorker":
        """A worker in this process: `with outbox.worker(): …`, `async with`, or its `start` and `stop`.

        `async with` runs `async def` handlers in the event loop that enters it, so they may use what the application
        uses there; `loop="own"`, and `with`, in a loop of their own in a thread of its own.
        """
        require_workers()
        from partbox.supervisor.embedded import EmbeddedWorker

        worker = EmbeddedWorker(
            self.settings,
            self.handlers,
            self.codecs,
            self._database.resolve(),
            subscription=subscription,
            concurrency=arguments.count("concurrency", concurrency, self.settings.concurrency),
            own_loop=arguments.handlers_loop(loop),
            meters=self._shown.meters(subscription, *self.handlers.names(subscription, self.settings)),
        )
        self._workers.register(worker)
        return worker

    def drain(self, *, timeout: float = 60.0, concurrency: int | None = None, subscription: str = "default") -> bool:
        """Deliver what is due, in this process, and return; True if no event is left but dead and scheduled ones.

        False when `timeout` seconds did not suffice, or cannot; at once if `enabled` is false, for then nothing is
        delivered.
        """
        with self.worker(concurrency=concurrency, subscription=subscription) as worker:
            return worker.wait_until_empty(timeout)

    def supervisor(
        self,
        *,
        processes: int | None = None,
        concurrency: int | None = None,
        subscription: str = "default",
        metrics: bool = False,
    ) -> "Supervisor":
        """A node of worker processes beside this one, not started yet; None leaves a number to the settings.

        `metrics`: have them counted; with a `registry` they always are.
        """
        nodes = self._nodes(processes=processes, concurrency=concurrency, subscription=subscription)
        return nodes.supervisor(metrics=metrics)

    def run(
        self,
        *,
        processes: int | None = None,
        concurrency: int | None = None,
        subscription: str = "default",
        until_empty: bool = False,
    ) -> int:
        """Deliver by worker processes until SIGTERM, SIGINT or SIGHUP; the exit code.

        `until_empty` ends it when all is delivered, or with 1 when what is left cannot be for now. The setting `http`
        serves metrics and health checks meanwhile.
        """
        nodes = self._nodes(processes=processes, concurrency=concurrency, subscription=subscription)
        return nodes.run(until_empty=until_empty)

    def _nodes(self, database: OutboxDatabase | None = None, **wanted: Any) -> "Nodes":
        """Its nodes, as `wanted`; `database` is the one of a command line."""
        require_workers()
        refuse_green_threads()
        from partbox.supervisor.nodes import Nodes

        return Nodes(database or self._database, self.handlers, self.codecs, self._shown, **wanted)

    def page(self, *, may: "May") -> "MountedPage":
        """The live page as an ASGI application: `app.mount("/outbox", outbox.page(may=…))`.

        `may(request, action)`, a function or a coroutine function, gets the Starlette request and "look", "payload",
        "replay", "discard", "retry", "skip", "pause", "resume" or "limit". It returns the identity of who may do that,
        under which it is logged, or None. Functions run in a thread, so they may wait. SettingsError without
        `partbox[http]`.
        """
        library("starlette", "http", "the live page needs starlette")
        from partbox.dashboard import MountedPage

        return MountedPage(self.settings, lambda: self.dsn, may)

    def observe(self, observer: AnyObserver) -> AnyObserver:
        """Adds an observer: metrics, traces, or your own subclass of `partbox.observe.Observer`; returns it.

        Worker processes have copies of their own. RegistrationError for anything else.
        """
        if not isinstance(observer, Observer):
            raise RegistrationError(
                f"{observer!r} is not an Observer: give an instance of a subclass of partbox.observe.Observer"
            )
        self.handlers.observe(observer)
        if isinstance(observer, Display):
            self._shown.show_on(observer)
            if not any(each is self._shown for each in self.handlers.observers):
                self.handlers.observe(self._shown)
        self._publisher = replace(self._publisher, observers=Observers(self.handlers.observers))
        return observer

    @overload
    def task(self, function: Callable[P, R], /) -> "Task[P, R]": ...

    @overload
    def task(
        self, /, *, subscription: str = "default", aggregate_type: str | Enum | None = None, **options: Unpack[Options]
    ) -> "Callable[[Callable[P, R]], Task[P, R]]": ...

    def task(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        subscription: str = "default",
        aggregate_type: str | Enum | None = None,
        **options: Unpack[Options],
    ) -> "Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]":
        """Decorates a function with annotated parameters: `publish(conn, **arguments)` has a worker call it.

        `name` is the type of its events, module and function unless given; a function that is renamed keeps it, so
        that what was published before is delivered. `aggregate_type` has its events join those of that type, so that
        `options(aggregate_id=…)` puts them in order with the aggregate's others. All other options are those of a
        handler. A parameter annotated with `DeliveredEvent` gets the event. RegistrationError for a second task of
        that name.
        """
        from partbox.tasks import task

        def decorate(function: Callable[P, R]) -> "Task[P, R]":
            return task(self, self.handlers, function, subscription, aggregate_type, options)

        return decorate if function is None else decorate(function)
