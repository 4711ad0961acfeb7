"""Named statements as text: those that an application's own library runs, through its adapter, on its own connection.

Each is a function of the schema, and kept for the one it was composed for: asking again costs a look-up. The types at
the end are those of the connections.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

from psycopg.sql import Literal

from partbox.db.sql import plain_query, query, script


def _statement(name: str, find: Callable[[str, str], bytes] = query) -> Callable[[str], bytes]:
    return cache(partial(find, name))


publish = _statement("publish")
"""Insert one event; the number of rows is 1 if it was written."""
publish_told = _statement("publish_told")
"""Insert one event; a row if it was written."""
publish_ringing = _statement("publish_ringing")
"""Insert one event, and ring if the flag is up; a row if it was written: whether it rang."""
publish_unheard = _statement("publish_unheard")
"""Insert one event, and ring if wanted; fails if it was not written."""
refuse_unwritten = _statement("refuse_unwritten")
"""Fail, and with it the transaction, because an event was not written."""
publish_several = _statement("publish_several")
"""Insert several events; fails unless all were written."""
publish_several_ringing = _statement("publish_several_ringing")
"""Insert several events, and ring if the flag is up; whether it rang. Fails unless all were written."""
ring = _statement("ring")
"""Ring for partitions if the flag is up; whether it rang."""
publish_once = _statement("publish_once")
"""Insert one event with an idempotency key; whether that was unused. Fails if it was and the event not written."""
publish_once_ringing = _statement("publish_once_ringing")
"""`publish_once`, which rings."""
take_keys = _statement("take_keys")
"""Take the idempotency keys of several events; the places of those that were unused."""
used_keys = _statement("used_keys")
"""The number of these idempotency keys that are there."""
cancel = _statement("cancel")
"""Cancel a delayed event; whether that was in time."""
publish_clock = _statement("publish_clock")
"""The database's clock in microseconds since 1970, for events that are copied."""
publish_copy = _statement("publish_copy", plain_query)
"""COPY of events that leave every time to the database."""
publish_copy_timed = _statement("publish_copy_timed", plain_query)
"""COPY of events of which some have times of their own."""
publish_mark = _statement("publish_mark")
"""Note in the transaction that a batch was published."""
published_marks = partial(query, "published_marks", "partbox")
"""The batches that no savepoint has taken back."""


def published_anew(marks: str) -> bytes:
    """Return the statement that notes all these batches at once."""
    return script("published_anew", marks=Literal(marks))


publish_xid = partial(query, "publish_xid", "partbox")
"""The id of the transaction, to be asked for later."""
published_status = partial(query, "published_status", "partbox")
"""The state of a transaction: committed, aborted, or in progress."""
inbox_first_time = _statement("inbox_first_time")
"""Note that a consumer has seen an event; a row if it is the first time."""
inbox_seen = _statement("inbox_seen")
"""Try the same again; the lines of the plan as it ran, which count the rows that were in the way."""
django_newest = _statement("django_newest")
"""The highest record id that was given out."""
django_published = _statement("django_published")
"""An id at or a little above that of the record which this session has published last."""
django_task = _statement("django_task")
"""Path, payload, time, status, attempts, error and traceback of a task."""


class _Commits(Protocol):
    def commit(self) -> None: ...


class _DjangoProxy(Protocol):
    """Django's `connection`, which has no `commit` of its own: it passes on what it is asked for."""

    def __getattr__(self, item: Any, /) -> Any: ...

    def __contains__(self, key: Any, /) -> bool: ...


AnySync = _Commits | _DjangoProxy
"""A connection or session of psycopg, SQLAlchemy, SQLModel or Django, or one that an adapter is registered for."""


class _AsyncCommits(Protocol):
    async def commit(self) -> None: ...


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, by two of its methods."""

    def is_in_transaction(self) -> bool: ...

    async def fetch(self, query: Any, /, *args: Any) -> Any: ...


AnyAsync = _AsyncCommits | AsyncpgConnection
"""A connection or session of psycopg, SQLAlchemy or asyncpg, or one that an adapter is registered for."""
