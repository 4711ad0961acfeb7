"""The outbox of a Django project, set up for handlers that use Django."""

from threading import RLock
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from partbox.django.conf import import_outbox
from partbox.outbox import Outbox

# Names the same outbox for the command line and its processes.
TARGET = "partbox.django.target:outbox"
# Several threads may ask first, each for its request.
_load_lock = RLock()


class FreshConnections:
    """An interceptor that gives handlers Django connections that are neither broken nor older than CONN_MAX_AGE.

    All `async def` handlers share the connections of one thread. Old connections are closed there only while no handler
    runs, because another handler may read from a cursor, as in `aiterator()`. Broken ones are closed at once."""

    _running: ClassVar[set["FreshConnections"]] = set()

    def __init__(self, event: Any) -> None: ...

    def __enter__(self) -> None:
        _close_old()

    def __exit__(self, *_: object) -> None:
        _close_old()

    async def __aenter__(self) -> None:
        alone = not self._running
        # Added before the first await: a handler that comes meanwhile may be reading when this one goes on.
        self._running.add(self)
        try:
            await sync_to_async(_close_old if alone else _close_broken)()
        except BaseException:
            self._running.discard(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._running.discard(self)
        await sync_to_async(_close_broken if self._running else _close_old)()


def _close_old() -> None:
    # Django does the same after a request. Inside a transaction around the handler, of a test or a worker, the
    # connection stays.
    for conn in connections.all(initialized_only=True):
        if not conn.in_atomic_block:
            conn.close_if_unusable_or_obsolete()


def _close_broken() -> None:
    for conn in connections.all(initialized_only=True):
        if conn.errors_occurred and not conn.in_atomic_block and not conn.is_usable():
            conn.close()


def load_outbox() -> Outbox:
    """Import the outbox that Django's setting PARTBOX names, and prepare it to run handlers and tasks in Django."""
    # Errors of importing the outbox's module are raised.
    outbox = import_outbox()
    with _load_lock:
        if FreshConnections not in outbox.handlers.interceptors:
            if getattr(settings, "TASKS", None):
                from partbox.django.task_backend import register

                register(outbox)
            # Around the application's own interceptors.
            outbox.handlers.interceptors = (FreshConnections, *outbox.handlers.interceptors)
    return outbox
