"""A column of type json."""

from typing import Any

from django.db import models


class Json(models.JSONField):
    """Of type json, which psycopg decodes; Django's own field is of jsonb, and decodes by itself."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value
