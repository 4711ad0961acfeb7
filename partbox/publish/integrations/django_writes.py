"""Refuses what Django's ORM writes inside a transactional handler: it has a connection, so a transaction, of its own.

That would be committed whatever becomes of the handler's, and be written again when the event comes again.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connections

from partbox.errors import PartboxError

_BLANK = r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*"
_READS = re.compile(
    _BLANK + r"(?:select|with|values|table|explain|show|set|declare|fetch|close|begin|savepoint|release|rollback)\b",
    re.IGNORECASE | re.DOTALL,
)
_WRITES_WITHIN = re.compile(r"\b(?:insert\s+into|update\s+\S+\s+set|delete\s+from|merge\s+into)\b", re.IGNORECASE)


@contextmanager
def refused(conn: Any) -> Iterator[None]:
    """Raise PartboxError for each write of this thread on a connection of Django that is not on `conn`."""
    with ExitStack() as stack:
        for each in connections.all() if settings.configured else ():
            stack.enter_context(each.execute_wrapper(partial(_execute, conn)))
        yield


def _execute(conn: Any, execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    used = context["connection"]
    if used.connection is not conn and not _only_reads(str(sql)):
        raise PartboxError(
            f"a transactional handler cannot write on Django's connection {used.alias!r}, whose transaction is "
            "another: write by the connection that the handler is given, or leave out transactional=True and use "
            "outbox.inbox in transaction.atomic() (see docs/django.md)"
        )
    return execute(sql, params, many, context)


def _only_reads(sql: str) -> bool:
    return _READS.match(sql) is not None and _WRITES_WITHIN.search(sql) is None
