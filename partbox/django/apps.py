"""The app configuration of `partbox.django`."""

from django.apps import AppConfig


class PartboxConfig(AppConfig):
    name = "partbox.django"
    label = "partbox"
    verbose_name = "Partbox"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Django's database becomes the default DSN of the outboxes in this process.
        from partbox.db import connect
        from partbox.django import checks, database

        connect.default_dsn = database.dsn
        checks.register()
