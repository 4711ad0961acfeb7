"""The module that `partbox worker` imports, in each of its processes."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.events import outbox  # noqa: E402

__all__ = ["outbox"]
