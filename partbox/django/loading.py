"""Finds the outbox of a Django project, and gives it what its handlers need there."""

from importlib import import_module
from threading import RLock

from django.core.exceptions import ImproperlyConfigured

from partbox.django.conf import config
from partbox.django.connections import FreshConnections
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


def named() -> Outbox:
    """The same as the application has made it."""
    target = config().outbox
    if not target:
        raise ImproperlyConfigured('PARTBOX has no "OUTBOX": name it, such as "shop.outbox:outbox"')
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise ImproperlyConfigured(f'PARTBOX["OUTBOX"] is {target!r}: write MODULE:OUTBOX, as in "shop.outbox:outbox"')
    found = getattr(import_module(module), attribute, None)
    if not isinstance(found, Outbox):
        raise ImproperlyConfigured(f'PARTBOX["OUTBOX"] is {target!r}, and there is no Outbox of that name in it')
    return found


def _take_tasks(outbox: Outbox) -> None:
    from django.conf import settings

    if getattr(settings, "TASKS", None):
        from partbox.django.tasks.handler import register

        register(outbox)
