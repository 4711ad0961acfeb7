from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from partbox.django.loading import TARGET
from partbox.django.running import Forwarded


class Command(Forwarded):
    help = 'Deliver events to the handlers of PARTBOX["OUTBOX"] until stopped.'
    name = "worker"
    target = TARGET

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--reload", action="store_true", help="Start anew when a file changes; needs DEBUG.")
        super().add_arguments(parser)

    def handle(self, *arguments: Any, reload: bool = False, **options: Any) -> None:
        if not reload:
            super().handle(*arguments, **options)
            return
        if not settings.DEBUG:
            raise CommandError("--reload is for development: it needs DEBUG = True")
        from partbox.django.reload import reloading

        reloading(lambda: super(Command, self).handle(*arguments, **options))
