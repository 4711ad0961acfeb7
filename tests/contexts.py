"""What the parts of a worker share, for tests that make one of them by itself; and the rows that they hand around."""

from typing import Any

from partbox.handlers import Handlers
from partbox.observe import Observers
from partbox.settings import load
from partbox.worker.context import Context
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.read_budget import ReadBounds
from partbox.worker.engine.ready_queue import RunQueue
from partbox.worker.runners.endpoint import Endpoint, RunKind


def context(
    dsn: str = "postgresql://nowhere",
    handlers: Handlers | None = None,
    *,
    concurrency: int = 1,
    queue: RunQueue | None = None,
    shared_lanes: bool = False,
    **settings: Any,
) -> Context:
    """The context of a worker of `default` with these settings, and with an engine."""
    loaded = load(**{"dsn": dsn} | settings)
    routes = (handlers or Handlers()).build_routes("default", loaded)
    endpoints = routes.map_handlers(lambda handler: Endpoint(handler, (), 4_000, Observers()))
    bounds = ReadBounds(
        loaded.page, loaded.window, loaded.max_parked, loaded.window_bytes, loaded.max_waiting, loaded.spill_after
    )
    transactional = any(endpoint.kind is RunKind.TRANSACTIONAL for endpoint in endpoints.list_all())
    engine = Engine(concurrency, bounds, queue, shared_lanes=shared_lanes, transactional=transactional)
    return Context(loaded, lambda: dsn, endpoints, engine, concurrency=concurrency)


def row(id: int, key: str = "k", event_type: str = "Counted") -> tuple[Any, ...]:
    """A record of partition 5, as a poll brings it."""
    return (5, id, id.to_bytes(16), event_type, "Key", key, None, b"{}", None, None, None, None, bytes(8), bytes(8))
