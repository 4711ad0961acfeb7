"""A column of type json."""

from collections.abc import Callable
from typing import Any

from django.db import models
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast


class Json(models.JSONField):
    """Of type json, which psycopg decodes; Django's own field is of jsonb, and decodes by itself.

    Filters compare as jsonb: json has no operators. Values that are read are not cast: jsonb lacks U+0000.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value

    def get_transform(self, lookup_name: str) -> Any:
        return super(models.JSONField, self).get_transform(lookup_name) or _of_jsonb(KeyTransform, lookup_name)

    def get_lookup(self, lookup_name: str) -> Any:
        found = super().get_lookup(lookup_name)
        return found if found is None or lookup_name == "isnull" else _of_jsonb(found)


def _of_jsonb(expression: Any, *before: Any) -> Callable[..., Any]:
    """The same, of the column as jsonb, which is the first argument after `before`."""
    return lambda lhs, *others: expression(*before, Cast(lhs, models.JSONField()), *others)
