"""Read-only models of the log and of dead records. partbox creates the tables, and Django never changes them."""

from collections.abc import Callable
from typing import Any

from django.db import models
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast

from partbox.django.conf import table


class Json(models.JSONField):
    """A Django model field for columns of the PostgreSQL type json.

    Values are decoded by psycopg. Filters compare as jsonb, because json has no operators. Values that are read are not
    cast, because jsonb cannot hold U+0000."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value

    def get_transform(self, lookup_name: str) -> Any:
        return super(models.JSONField, self).get_transform(lookup_name) or _cast_to_jsonb(KeyTransform, lookup_name)

    def get_lookup(self, lookup_name: str) -> Any:
        found = super().get_lookup(lookup_name)
        return found if found is None or lookup_name == "isnull" else _cast_to_jsonb(found)


def _cast_to_jsonb(expression: Any, *before: Any) -> Callable[..., Any]:
    return lambda lhs, *others: expression(*before, Cast(lhs, models.JSONField()), *others)


class Record(models.Model):
    """A read-only Django model of an event in the log."""

    id = models.BigIntegerField(primary_key=True)
    partition = models.SmallIntegerField()
    event_id = models.UUIDField()
    event_type = models.TextField()
    aggregate_type = models.TextField()
    aggregate_id = models.TextField(null=True)
    tenant_id = models.TextField(null=True)
    payload = Json(null=True)
    content_type = models.TextField(null=True)
    headers = Json(null=True)
    available_at = models.DateTimeField(null=True)
    occurred_at = models.DateTimeField()
    created_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = table("record")
        default_permissions = ("view",)
        permissions = (("view_payload", "Can view the payloads of records"),)

    def __str__(self) -> str:
        return f"{self.event_type} {self.id}"


class Dead(models.Model):
    """A Django model of a dead event: an event that a subscription has stopped retrying."""

    record_id = models.BigIntegerField(primary_key=True)
    subscription = models.TextField()
    event_id = models.UUIDField(null=True)
    event_type = models.TextField()
    aggregate_type = models.TextField()
    aggregate_id = models.TextField(null=True)
    tenant_id = models.TextField(null=True)
    attempts = models.IntegerField()
    died_at = models.DateTimeField()
    published_at = models.DateTimeField(null=True)
    error = models.TextField(null=True)
    traceback = models.TextField(null=True)
    blocks = models.BooleanField(help_text="Later events of its aggregate wait for it.")

    class Meta:
        managed = False
        db_table = table("dead")
        default_permissions = ("view",)
        permissions = (("replay_dead", "Can replay dead records"), ("discard_dead", "Can discard dead records"))
        verbose_name = "dead record"

    def __str__(self) -> str:
        return f"{self.event_type} {self.record_id}"
