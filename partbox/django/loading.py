"""Finds the outbox of a Django project, and gives it what its handlers need there."""

from threading import RLock
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from partbox.django.conf import import_outbox
from partbox.outbox import Outbox

TARGET = "partbox.django.target:outbox"
"""The same for the command line and its processes."""
_load_lock = RLock()  # requests in several threads may be the first to ask


class FreshConnections:
    """An interceptor: the handler gets connections that are neither broken nor older than CONN_MAX_AGE.

    All `async def` handlers share the connections of the thread in which `sync_to_async` runs. Old ones are
    closed there while no handler is running: a handler that ends would close the cursor that another reads from, as in
    `aiterator()`. Broken ones are closed at once.
    """

    _running: ClassVar[set["FreshConnections"]] = set()

    def __init__(self, event: Any) -> None: ...

    def __enter__(self) -> None:
        _close_old()

    def __exit__(self, *_: object) -> None:
        _close_old()

    async def __aenter__(self) -> None:
        alone = not self._running
        self._running.add(self)  # before it waits: who comes meanwhile may be reading when this goes on
        try:
            await sync_to_async(_close_old if alone else _close_broken)()
        except BaseException:
            self._running.discard(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._running.discard(self)
        await sync_to_async(_close_broken if self._running else _close_old)()


def _close_old() -> None:
    """Close old connections as Django does, except one with a transaction around the handler (a test's, a worker's)."""
    for conn in connections.all(initialized_only=True):
        if not conn.in_atomic_block:
            conn.close_if_unusable_or_obsolete()


def _close_broken() -> None:
    """Close connections in which a statement has failed and that are unusable."""
    for conn in connections.all(initialized_only=True):
        if conn.errors_occurred and not conn.in_atomic_block and not conn.is_usable():
            conn.close()


def load_outbox() -> Outbox:
    """The outbox that the setting names. Errors of importing its module are raised."""
    outbox = import_outbox()
    with _load_lock:
        if FreshConnections not in outbox.handlers.interceptors:
            if getattr(settings, "TASKS", None):
                from partbox.django.task_backend import register

                register(outbox)
            outbox.handlers.interceptors = (FreshConnections, *outbox.handlers.interceptors)  # around the application's
    return outbox
