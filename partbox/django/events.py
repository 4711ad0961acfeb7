"""Models that collect domain events, which are published when the model is saved or deleted."""

from collections.abc import Callable
from typing import Any

from django.db import connections, router, transaction

from partbox.django import outbox
from partbox.events.gathering import EventsMixin

__all__ = ["ModelEventsMixin"]


class ModelEventsMixin(EventsMixin):
    """A mixin for Django models: `save` and `delete` publish the events in the list `events`, in their transaction.

        class Order(ModelEventsMixin, models.Model): ...

        order.events.append(OrderPlaced(...))
        order.save()

    `events` takes everything that `publish_many` takes. An event leaves the list once it is published. If `save` or an
    event fails, the list is as before, and nothing of the call is written. Without a surrounding transaction, the call
    is one of its own. QuerySet's `update`, `bulk_create` and `bulk_update` call no `save` and therefore publish
    nothing."""

    def save(self, *args: Any, using: str | None = None, **options: Any) -> None:
        save = super().save  # type: ignore[misc]
        self._write_and_publish(using, lambda alias: save(*args, using=alias, **options))

    def delete(self, *args: Any, using: str | None = None, **options: Any) -> Any:
        delete = super().delete  # type: ignore[misc]
        return self._write_and_publish(using, lambda alias: delete(*args, using=alias, **options))

    def _write_and_publish(self, using: str | None, write: Callable[[str], Any]) -> Any:
        alias = using or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using=alias, savepoint=False):
            written = write(alias)
            taken = self.events.take_events()
            try:
                if taken:
                    outbox().publish_many(connections[alias], [each.event for each in taken])
            except BaseException:
                self.events.put_back(taken)
                raise
        return written
