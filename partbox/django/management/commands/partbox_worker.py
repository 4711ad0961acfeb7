import sys
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils.autoreload import get_child_arguments

from partbox.django.loading import TARGET
from partbox.django.running import ForwardedCommand


class Command(ForwardedCommand):
    help = 'Deliver events to the handlers of PARTBOX["OUTBOX"] until stopped.'
    name = "worker"
    target = TARGET

    def handle(self, *arguments: Any, **options: Any) -> None:
        if options.get("partbox_reload") and not settings.DEBUG:
            raise CommandError("--reload is for development: it needs DEBUG = True")
        if options.get("partbox_reload"):
            from partbox.cli.shell.reload import is_inner, run_reloading

            if not is_inner():
                sys.exit(run_reloading(get_child_arguments(), settings.SETTINGS_MODULE))
        super().handle(*arguments, **options)
