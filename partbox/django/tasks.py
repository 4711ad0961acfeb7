"""A backend for Django's tasks: `TASKS = {"default": {"BACKEND": "partbox.django.tasks.PartboxBackend"}}`.

Celery and others import the module `tasks` of each installed app. So this is a separate module, which needs
django-tasks only when the backend is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partbox.django.task_backend import PartboxBackend

__all__ = ["PartboxBackend"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from partbox.django import task_backend

    return getattr(task_backend, name)
