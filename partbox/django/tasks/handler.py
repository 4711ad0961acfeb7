"""Runs tasks in a worker."""

from traceback import format_exception
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from partbox.django.tasks import calls
from partbox.django.tasks.api import base, signals
from partbox.django.tasks.backend import PartboxBackend
from partbox.events import DeliveredEvent
from partbox.handlers import ANY
from partbox.outbox import Outbox


def register(outbox: Outbox) -> None:
    """Have the outbox run the tasks of each of our backends in TASKS, whose OPTIONS are those of the handler."""
    for alias, given in settings.TASKS.items():
        backend = import_string(given["BACKEND"])
        if isinstance(backend, type) and issubclass(backend, PartboxBackend):
            outbox.register(Runner(alias), ANY, calls.aggregate_type(alias), **given.get("OPTIONS", {}))


class Runner:
    """The handler of all tasks of a backend. A task that raises is retried by the handler's policy."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def handle(self, event: DeliveredEvent) -> None:
        began, path = timezone.now(), event.event_type
        result = calls.result(
            path,
            self.alias,
            event.payload,
            f"{event.id}.{event.event_id}",
            status=base.TaskResultStatus.RUNNING,
            enqueued_at=event.created_at,
            started_at=began,
            last_attempted_at=began,
            worker_ids=[f"partition {event.partition}"] * event.attempt,
        )
        signals.task_started.send(PartboxBackend, task_result=result)
        try:
            context = [base.TaskContext(task_result=result)] if result.task.takes_context else []
            result.task.call(*context, *result.args, **result.kwargs)
        except Exception as error:
            _end(result, base.TaskResultStatus.FAILED, error)
            raise
        _end(result, base.TaskResultStatus.SUCCESSFUL)


def _end(result: Any, status: Any, error: Exception | None = None) -> None:
    if error is not None:
        kind = type(error)
        trace = "".join(format_exception(error))
        result.errors.append(
            base.TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=trace)
        )
    object.__setattr__(result, "finished_at", timezone.now())  # frozen, as Django's own backends have it
    object.__setattr__(result, "status", status)
    signals.task_finished.send(PartboxBackend, task_result=result)
