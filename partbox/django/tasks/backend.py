"""The backend: a task is an event, published in the transaction of whoever enqueues it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from partbox.db.operator.dead import typed
from partbox.django import database
from partbox.django.conf import named
from partbox.django.database import connection
from partbox.django.tasks import calls
from partbox.django.tasks.api import BaseTaskBackend, base, exceptions, signals
from partbox.errors import PublishError

READY, FAILED = base.TaskResultStatus.READY, base.TaskResultStatus.FAILED
STATUS = {"done": base.TaskResultStatus.SUCCESSFUL, "dead": FAILED, "discarded": FAILED}


class PartboxBackend(BaseTaskBackend):
    """OPTIONS are those of a handler, such as max_attempts, and `subscription`.

    A result's id names the record, so that it is found by the key of the log. The return value of a task is not kept.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        event = calls.event(task, args, kwargs)
        conn = connection()
        # The caller's transaction, if there is one. Not an inner `atomic`: a refused publish would break it.
        with nullcontext() if conn.in_atomic_block else transaction.atomic(using=conn.alias):
            if named().publish(conn, event) is None:
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
            errors=[_error(row.error, row.trace)] if row.error else [],
            worker_ids=[""] * (row.attempts or 0),
        )


def _error(error: str, trace: str | None) -> Any:
    kind, _ = typed(error)
    name = kind or "Exception"
    return base.TaskError(exception_class_path=name if "." in name else f"builtins.{name}", traceback=trace or error)
