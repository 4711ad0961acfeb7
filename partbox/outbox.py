"""The main class of partbox, with which an application publishes events and registers handlers. Each method imports the
modules that it alone needs, so an application that only publishes imports no code for delivery."""

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
from partbox.errors import PublishError, RegistrationError
from partbox.events import Event, upcasts
from partbox.events.event import NOT_GIVEN, EventFields
from partbox.handlers import Handlers, Options
from partbox.handlers.registry import Registrar
from partbox.hosts import refuse_green_threads
from partbox.observe import Observer, Observers
from partbox.observe.metrics.registry import ApplicationRegistry, Display
from partbox.operations import Operations, arguments
from partbox.platform import library, require_workers
from partbox.publish import (
    Bell,
    EmbeddedWorkers,
    HookMoment,
    Publisher,
    PublishHooks,
    TransactionScope,
    cancellation,
    near_misses,
)

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
    """A transactional outbox: events are published into a schema of a PostgreSQL database and delivered to handlers.

    `dsn` is a libpq DSN, `embedded:`, `embedded:./folder`, or a function that returns a DSN each time a connection is
    opened (for rotating passwords). None means the DSN in the settings. `codecs` are for content types beside JSON and
    octets. `registry` is a Prometheus registry that shows the number of published events and the metrics of workers in
    this process. All other keywords are settings. Raise SettingsError if a setting is wrong."""

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
        return self.handlers.list_limitable_names(subscription)

    def _configure(self, database: OutboxDatabase) -> None:
        """Use the command line's database and settings instead of this outbox's own."""
        # This happens in a worker process that has imported this outbox.
        self._database = database
        self._publisher = replace(
            self._publisher,
            schema=self.settings.schema_name,
            max_payload=self.settings.max_payload,
            bell=Bell(self.settings.bell != "off"),
        )

    @overload
    def publish(self, conn: AnySync, event: Event | Instance, **fields: Unpack[EventFields]) -> UUID | None: ...

    @overload
    def publish(self, conn: AnySync, event: str | Enum, payload: Any, **fields: Unpack[EventFields]) -> UUID | None: ...

    def publish(
        self,
        conn: Any = NOT_GIVEN,
        event: Any = NOT_GIVEN,
        payload: Any = NOT_GIVEN,
        **fields: Unpack[EventFields],
    ) -> UUID | None:
        """Publish an event in the transaction of `conn`, to be delivered only if it commits, and return its id.

        The event is an instance of a class decorated with `@partbox.event`, an Event, or `(type, payload)` of one.
        `conn` is a connection of psycopg, a Session, scoped_session or Connection of SQLAlchemy, a Session of SQLModel,
        `django.db.connection` or `connections[alias]`, or an object with a registered adapter. `fields` are the fields
        of `Event`, unless an Event is given. Return None if a `before_publish` hook suppressed the event or if its
        idempotency key was used before. Raise PublishError before anything is written. The connection stays usable."""
        try:
            return self._publisher.publish(conn, event, payload, fields)
        except (PublishError, TypeError):
            near_misses.explain_publish("publish", conn, event, payload)
            raise

    def _explain_task(self, call: str, task: str, conn: Any, given: tuple[Any, ...]) -> None:
        near_misses.explain_task(call, task, conn, *given)

    def publish_many(self, conn: AnySync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """Publish several events in order, all or none, in the transaction of `conn`, and return their ids.

        Events are Event objects and instances of event classes. An id is None if the idempotency key of its event was
        used before. The list is empty if a `before_publish` hook suppressed the batch."""
        try:
            return self._publisher.publish_many(conn, events)
        except (PublishError, TypeError):
            near_misses.explain_publish_many("publish_many", conn, events)
            raise

    @overload
    async def publish_async(
        self, conn: AnyAsync, event: Event | Instance, **fields: Unpack[EventFields]
    ) -> UUID | None: ...

    @overload
    async def publish_async(
        self, conn: AnyAsync, event: str | Enum, payload: Any, **fields: Unpack[EventFields]
    ) -> UUID | None: ...

    async def publish_async(
        self,
        conn: Any = NOT_GIVEN,
        event: Any = NOT_GIVEN,
        payload: Any = NOT_GIVEN,
        **fields: Unpack[EventFields],
    ) -> UUID | None:
        """Publish an event as `publish` does, on an asynchronous connection: of psycopg or asyncpg, or an AsyncSession,
        async_scoped_session or AsyncConnection of SQLAlchemy."""
        try:
            return await self._publisher.publish_async(conn, event, payload, fields)
        except (PublishError, TypeError):
            near_misses.explain_publish("publish_async", conn, event, payload)
            raise

    async def publish_many_async(self, conn: AnyAsync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """Publish several events as `publish_many` does, on an asynchronous connection, and return their ids."""
        try:
            return await self._publisher.publish_many_async(conn, events)
        except (PublishError, TypeError):
            near_misses.explain_publish_many("publish_many_async", conn, events)
            raise

    def cancel(self, conn: AnySync, event: Event | UUID | str | None = None, *, key: str | None = None) -> bool:
        """Cancel the delivery of a delayed event, in the transaction of `conn`.

        The event is given by itself, its id or its idempotency key.

        Return True if the cancellation is in time: once the transaction has committed, no handler of any subscription
        has run the event or will run it. Return False if the event's time has come or if there is no such delayed
        event. A rollback undoes the cancellation. `conn` and the errors are the same as for `publish`."""
        return cancellation.cancel(conn, self.settings.schema_name, event, key)

    async def cancel_async(
        self, conn: AnyAsync, event: Event | UUID | str | None = None, *, key: str | None = None
    ) -> bool:
        """Cancel a delayed event as `cancel` does, in the transaction of an asynchronous connection."""
        return await cancellation.cancel_async(conn, self.settings.schema_name, event, key)

    def upcast(self, cls: type[Instance], *, from_version: int) -> Callable[[AnyUpcast], AnyUpcast]:
        """Register the decorated function to convert stored payloads of one version into the next.

        `upcast(payload)` returns the new payload. A request for the class gets older payloads through these functions,
        step by step, each as the dict that its JSON holds. Raise RegistrationError if the class is no event, or if
        `from_version` does not lead to the version of the class."""

        def register(function: AnyUpcast) -> AnyUpcast:
            upcasts.add_upcast(self.codecs.upcasts, cls, from_version, function)
            return function

        return register

    def before_publish(self, hook: Hook) -> Hook:
        """Register a hook that may check or change each batch of events before it is written.

        `hook(events)` returns the list to publish, or None to publish the given list as it is then. A batch is
        everything that one call publishes. An empty list suppresses the batch, and an exception ends the call with
        nothing written. Hooks run in the order of registration, and `async def` hooks only in asynchronous calls."""
        self._hooks.register(HookMoment.BEFORE_PUBLISH, hook)
        return hook

    def after_publish(self, hook: Hook) -> Hook:
        """Register a hook that gets each batch of events after it was written, before the commit. The batch may still
        be rolled back. Errors of the hook are logged."""
        self._hooks.register(HookMoment.AFTER_PUBLISH, hook)
        return hook

    def after_commit(self, hook: Hook) -> Hook:
        """Register a hook that gets each batch of events whose transaction has committed.

        Errors of the hook are logged. psycopg and asyncpg do not report how a transaction ended: with such a hook,
        publishing on their connections is refused outside of `outbox.transaction(conn)`."""
        self._hooks.register(HookMoment.AFTER_COMMIT, hook)
        return hook

    def after_rollback(self, hook: Hook) -> Hook:
        """Register a hook that gets each batch of published events that was rolled back, to a savepoint or entirely.

        As with `after_commit`, errors are logged, and `outbox.transaction(conn)` is needed for psycopg and asyncpg. If
        a COMMIT was cut off before its answer, nobody knows how it ended, and neither hook is called. Django does not
        report rollbacks, so publishing on its connections is refused."""
        self._hooks.register(HookMoment.AFTER_ROLLBACK, hook)
        return hook

    def purger(self) -> "Purging":
        """Return a background thread that deletes old events every `purge_interval`: `with outbox.purger(): …`. `start`
        and `stop` work too. It is for applications that only publish, since workers purge by themselves."""
        from partbox.supervisor.purging import Purging

        return Purging(self.settings, self._database.resolve_dsn())

    def transaction(
        self, conn: Connection[Any] | AsyncConnection[Any] | AsyncpgConnection | None = None
    ) -> TransactionScope:
        """Open the outermost database transaction of `conn`, or of a new connection, for publishing events.

        `with outbox.transaction() as tx:` is for psycopg and asyncpg, which do not report how a transaction ended. The
        block gets the connection. `async with` takes an asynchronous connection. The transaction commits at the end
        unless an exception leaves the block. Then the `after_commit` or `after_rollback` hooks run, and a commit wakes
        the workers that this outbox has in this process. Raise PublishError if a transaction is open already, and
        psycopg.OperationalError if the connection is lost, even if the block caught that error."""
        return TransactionScope(conn, lambda: self.dsn, pooler=self.settings.pooler)

    @property
    def aio(self) -> "AsyncOperations":
        """The operator methods for async code, such as `await outbox.aio.dead.list()`. Each runs in a thread."""
        from partbox.operations.aio import AsyncOperations

        return AsyncOperations(self)

    def worker(
        self, *, concurrency: int | None = None, subscription: str = "default", loop: Literal["own"] | None = None
    ) -> "EmbeddedWorker":
        """Return a worker that delivers events in this process, for use with `with` or `async with`.

        Its `start` and `stop` work too. With `async with`, `async def` handlers run in the event loop that enters the
        block and can use its objects. With `loop="own"` or `with`, they run in an event loop in a thread of its own."""
        require_workers()
        from partbox.supervisor.embedded import EmbeddedWorker

        worker = EmbeddedWorker(
            self.settings,
            self.handlers,
            self.codecs,
            self._database.resolve_dsn(),
            subscription=subscription,
            concurrency=arguments.check_count("concurrency", concurrency, self.settings.concurrency),
            own_loop=arguments.has_own_loop(loop),
            meters=self._shown.get_shared_meters(subscription, *self.handlers.list_names(subscription, self.settings)),
        )
        self._workers.register(worker)
        return worker

    def drain(self, *, timeout: float = 60.0, concurrency: int | None = None, subscription: str = "default") -> bool:
        """Deliver all due events in this process, and return. Return False if `timeout` seconds were not enough.

        Return True if only dead and scheduled events are left. Return False early if no time can be enough, and at once
        if `enabled` is false."""
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
        """Return a supervisor, not started yet, that delivers events by worker processes.

        A number that is None comes from the settings. `metrics` makes the supervisor count its metrics, which a
        `registry` always does."""
        nodes = self._make_nodes(processes=processes, concurrency=concurrency, subscription=subscription)
        return nodes.build_supervisor(metrics=metrics)

    def run(
        self,
        *,
        processes: int | None = None,
        concurrency: int | None = None,
        subscription: str = "default",
        until_empty: bool = False,
    ) -> int:
        """Deliver events by worker processes until SIGTERM, SIGINT or SIGHUP, and return the exit code.

        `until_empty` ends the run when everything is delivered, or with exit code 1 when the remaining events cannot be
        delivered for now. The setting `http` serves metrics and health checks during the run."""
        nodes = self._make_nodes(processes=processes, concurrency=concurrency, subscription=subscription)
        return nodes.run(until_empty=until_empty)

    def _make_nodes(self, database: OutboxDatabase | None = None, **wanted: Any) -> "Nodes":
        """Return the object that builds and runs this outbox's supervisors."""
        # `database` is that of a command line, if there is one.
        require_workers()
        for each in ("multiprocess", "psutil"):
            library(each, "worker", f"worker processes need {each}")
        refuse_green_threads()
        from partbox.supervisor.nodes import Nodes

        return Nodes(database or self._database, self.handlers, self.codecs, self._shown, **wanted)

    def page(self, *, may: "May") -> "MountedPage":
        """Return the live dashboard as an ASGI application: `app.mount("/outbox", outbox.page(may=…))`.

        `may(request, action)`, a function or a coroutine function, gets the Starlette request and "look", "payload",
        "replay", "discard", "retry", "skip", "pause", "resume" or "limit". The result is the identity of the user,
        under which the action is logged, or None to refuse. Functions run in a thread, so they may block. Raise
        SettingsError without `partbox[http]`."""
        library("starlette", "http", "the live page needs starlette")
        from partbox.dashboard import MountedPage

        return MountedPage(self.settings, lambda: self.dsn, may)

    def observe(self, observer: AnyObserver) -> AnyObserver:
        """Add an observer (a `partbox.observe.Observer`) for metrics, traces or your own purposes, and return it.
        Worker processes get copies of their own. Raise RegistrationError if it is not one."""
        if not isinstance(observer, Observer):
            raise RegistrationError(
                f"{observer!r} is not an Observer: give an instance of a subclass of partbox.observe.Observer"
            )
        self.handlers.add_observer(observer)
        if isinstance(observer, Display):
            self._shown.show_on(observer)
            if not any(each is self._shown for each in self.handlers.observers):
                self.handlers.add_observer(self._shown)
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
        """Turn a function into a background task, which a worker calls after `publish(conn, **arguments)`.

        The function has annotated parameters. `name` is the type of its events, by default module and function. A
        renamed function keeps its old name as `name`, so that events published before are delivered. `aggregate_type`
        makes its events belong to that aggregate type, so that `options(aggregate_id=…)` orders them with the
        aggregate's other events. All other options are the same as for a handler. A parameter annotated with
        `DeliveredEvent` gets the event, one annotated with the class that the lifespan yields gets the state. Put the
        event first, and give the others that the worker supplies the default `partbox.supplied`: type checkers then
        know the arguments of `publish`. Raise RegistrationError for a second task of that name."""
        from partbox.tasks import task

        def decorate(function: Callable[P, R]) -> "Task[P, R]":
            return task(self, function, subscription, aggregate_type, options)

        return decorate if function is None else decorate(function)
