"""A backend for Django's tasks: `TASKS = {"default": {"BACKEND": "partbox.django.tasks.PartboxBackend"}}`."""

from partbox.django.tasks.backend import PartboxBackend

__all__ = ["PartboxBackend"]
