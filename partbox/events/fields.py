"""The fields of an event, as keywords."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import TypedDict
from uuid import UUID


class TaskFields(TypedDict, total=False):
    """Fields that a task's event may have (see `Event`)."""

    aggregate_id: str | int | UUID | None
    tenant_id: str | None
    headers: Mapping[str, str] | None
    event_id: UUID | str | None
    occurred_at: datetime | None
    available_at: datetime | None
    deliver_after: timedelta | float | str | None
    idempotency_key: str | None


class EventFields(TaskFields, total=False):
    """Fields that an event may have beside its type and its payload."""

    aggregate_type: str | Enum
    content_type: str | None
