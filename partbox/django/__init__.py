"""The Django app `partbox.django`: migrations, workers, admin, checks, and a backend for Django's tasks. The rest of
partbox imports nothing of it, and this module imports nothing of Django."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partbox.outbox import Outbox

__all__ = ["outbox"]


def outbox() -> "Outbox":
    """Return the outbox that the Django setting `PARTBOX["OUTBOX"]` names. Raise ImproperlyConfigured if that fails."""
    # The outbox is set up for handlers in Django.
    from partbox.django.loading import load_outbox

    return load_outbox()
