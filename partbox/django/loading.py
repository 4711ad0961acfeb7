"""Finds the outbox of a Django project, and gives it what its handlers need there."""

from threading import RLock

from partbox.django.connections import FreshConnections
from partbox.django.named import named
from partbox.outbox import Outbox

TARGET = "partbox.django.target:outbox"
"""The same for the command line and its processes."""
_once = RLock()  # requests in several threads may be the first to ask


def loaded() -> Outbox:
    """The outbox that the setting names. Errors of importing its module are raised."""
    outbox = named()
    with _once:
        if FreshConnections not in outbox.handlers.interceptors:
            _take_tasks(outbox)
            outbox.handlers.interceptors = (FreshConnections, *outbox.handlers.interceptors)  # around the application's
    return outbox


def _take_tasks(outbox: Outbox) -> None:
    from django.conf import settings

    if getattr(settings, "TASKS", None):
        from partbox.django.tasks.handler import register

        register(outbox)
