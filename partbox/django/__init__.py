"""The Django app `partbox.django`: migrations, workers, admin, checks, and a backend for Django's tasks.

Nothing of it is imported by the rest of partbox, and this file imports nothing of Django.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partbox.outbox import Outbox

__all__ = ["outbox"]


def outbox() -> "Outbox":
    """The outbox that `PARTBOX["OUTBOX"]` names, with what its handlers need in Django; ImproperlyConfigured."""
    from partbox.django.loading import load_outbox

    return load_outbox()
