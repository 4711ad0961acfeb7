"""Django models that `ratios/orm.py` writes by. Import the module after Django has its settings."""

from typing import Any, ClassVar

from django.db import models


class CountedKeyModel(models.Model):
    aggregate: Any = models.TextField(primary_key=True)
    total: Any = models.IntegerField()

    class Meta:
        app_label: ClassVar[str] = "lab"
        db_table: ClassVar[str] = "lab_tally"


class CountedEventModel(models.Model):
    id: Any = models.BigAutoField(primary_key=True)
    aggregate: Any = models.TextField()
    seq: Any = models.IntegerField()

    class Meta:
        app_label: ClassVar[str] = "lab"
        db_table: ClassVar[str] = "lab_trace"


def count_by_django(event: Any) -> None:
    """Read the count of the event's key, increment it, and insert the event."""
    key = CountedKeyModel.objects.get(aggregate=event.aggregate_id)
    key.total += 1
    key.save()
    CountedEventModel.objects.create(aggregate=event.aggregate_id, seq=event.payload["seq"])
