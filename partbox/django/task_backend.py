"""The task backend: a task is an event, published in the caller's transaction and run by a worker."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from traceback import format_exception
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from partbox.db.operator.dead import split_error
from partbox.django import database
from partbox.django import task_calls as calls
from partbox.django.conf import import_outbox
from partbox.django.database import connection
from partbox.django.task_calls import BaseTaskBackend, base, exceptions, signals
from partbox.errors import PublishError
from partbox.events import DeliveredEvent
from partbox.handlers import ANY
from partbox.outbox import Outbox
from partbox.text.secrets import mask_secrets

READY, FAILED = base.TaskResultStatus.READY, base.TaskResultStatus.FAILED
STATUS = {"done": base.TaskResultStatus.SUCCESSFUL, "dead": FAILED, "discarded": FAILED}


class PartboxBackend(BaseTaskBackend):
    """A backend for Django's tasks that publishes each task as an event and runs the task in a handler.

    OPTIONS are the options of a handler, such as max_attempts, and `subscription`. A result's id names the record.
    Return values of tasks are not kept."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        event = calls.event(task, args, kwargs)
        conn = connection()
        # In the caller's transaction, if there is one. An inner `atomic` would be marked as broken by a refused
        # publish.
        with nullcontext() if conn.in_atomic_block else transaction.atomic(using=conn.alias):
            if import_outbox().publish(conn, event) is None:
                raise PublishError(f"task {task.module_path} was suppressed by a before_publish hook")
            id = f"{database.published()}.{event.event_id}"
        result = calls.result(task.module_path, self.alias, event.payload, id, status=READY, enqueued_at=timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        record, _, event_id = result_id.partition(".")
        try:
            where = int(record), UUID(event_id)
        except ValueError:
            raise exceptions.TaskResultDoesNotExist(result_id) from None
        subscription = self.options.get("subscription", "default")
        row = database.task(subscription, calls.aggregate_type(self.alias), *where)
        if row is None:
            raise exceptions.TaskResultDoesNotExist(result_id)
        return calls.result(
            row.path,
            self.alias,
            row.payload,
            result_id,
            status=STATUS.get(row.status, READY),
            enqueued_at=row.created_at,
            errors=[_build_task_error(row.error, row.trace)] if row.error else [],
            worker_ids=[""] * (row.attempts or 0),
        )


def _build_task_error(error: str, trace: str | None) -> Any:
    kind, _ = split_error(error)
    name = kind or "Exception"
    return base.TaskError(
        exception_class_path=name if "." in name else f"builtins.{name}", traceback=mask_secrets(trace or error)
    )


def register(outbox: Outbox) -> None:
    """Register a handler with the outbox for each partbox backend in Django's setting TASKS."""
    for alias, given in settings.TASKS.items():
        backend = import_string(given["BACKEND"])
        if isinstance(backend, type) and issubclass(backend, PartboxBackend):
            outbox.register(Runner(alias), ANY, calls.aggregate_type(alias), **given.get("OPTIONS", {}))


class Runner:
    """The handler that runs all Django tasks of one task backend.

    A task that raises is retried by the handler's policy."""

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
            _finish_result(result, FAILED, error)
            raise
        _finish_result(result, base.TaskResultStatus.SUCCESSFUL)


def _finish_result(result: Any, status: Any, error: Exception | None = None) -> None:
    if error is not None:
        kind = type(error)
        trace = "".join(format_exception(error))
        result.errors.append(
            base.TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=trace)
        )
    # The result is frozen. Django's own backends set it in this way too.
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "status", status)
    signals.task_finished.send(PartboxBackend, task_result=result)
