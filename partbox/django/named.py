"""The outbox that a Django project names."""

from importlib import import_module

from django.core.exceptions import ImproperlyConfigured

from partbox.django.conf import config
from partbox.outbox import Outbox


def named() -> Outbox:
    """The outbox that `PARTBOX["OUTBOX"]` names, as the application has made it; ImproperlyConfigured."""
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
