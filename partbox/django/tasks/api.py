"""Django's tasks: of Django itself from version 6 on, else of the package django-tasks, which has the same names."""

import django
from django.core.exceptions import ImproperlyConfigured

if django.VERSION >= (6, 0):
    from django.tasks import base, exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import base, exceptions, signals
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImproperlyConfigured("Django before 6.0 has no tasks: install django-tasks") from error

__all__ = ["BaseTaskBackend", "base", "exceptions", "normalize_json", "signals"]
