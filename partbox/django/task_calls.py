"""Conversion of task calls to events and back. Tasks are Django's own from version 6 on, and before those of the
package django-tasks, which has the same names."""

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from partbox.events import Event

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

__all__ = ["BaseTaskBackend", "aggregate_type", "base", "event", "exceptions", "result", "signals"]

PREFIX = "django.task"


def aggregate_type(alias: str) -> str:
    """Return the aggregate type that marks events as tasks of the Django task backend `alias`."""
    # The handler of the backend receives all of its tasks by this aggregate type.
    return f"{PREFIX}.{alias}"


def event(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Event:
    """Convert a call of a Django task into an event. Raise TypeError for arguments that are not JSON."""
    # The type of the event is the path of the function. TaskResult would refuse the arguments only after the event is
    # committed.
    payload = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs)), "queue": task.queue_name}
    at = task.run_after
    if at is not None and timezone.is_naive(at):
        at = timezone.make_aware(at).astimezone(UTC)
    if at is not None and at <= timezone.now():
        at = None
    return Event(task.module_path, payload, aggregate_type=aggregate_type(task.backend), available_at=at)


def result(path: str, alias: str, payload: Mapping[str, Any], id: str, **more: Any) -> Any:
    """Return Django's TaskResult for a task call that was published as an event. `id` is the id of the result."""
    task = import_string(path)
    if not isinstance(task, base.Task):
        raise TypeError(f"{path} is not a task but a {type(task).__name__}")
    called = task.using(backend=alias, queue_name=payload["queue"])
    times = dict.fromkeys(("started_at", "finished_at", "last_attempted_at"))
    known = {"task": called, "id": id, "args": payload["args"], "kwargs": payload["kwargs"], "backend": alias}
    return base.TaskResult(**{**times, "errors": [], "worker_ids": [], **known, **more})
