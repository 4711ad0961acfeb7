"""The app as Django loads it."""

from django.apps import AppConfig


class PartboxConfig(AppConfig):
    name = "partbox.django"
    label = "partbox"
    verbose_name = "Partbox"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Give outboxes of this process that have no DSN the one of Django."""
        from partbox.db import connect
        from partbox.django import checks, database

        connect.default_dsn = database.dsn
        checks.register()
