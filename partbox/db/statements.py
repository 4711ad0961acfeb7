"""The text of statements that an application's library runs through its adapter, on the application's own connection.
Each is a function of the schema and caches its text per schema."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

from psycopg.sql import Literal

from partbox.db.sql import load_plain_query, load_query, load_script


def _build_statement(name: str, find: Callable[[str, str], bytes] = load_query) -> Callable[[str], bytes]:
    return cache(partial(find, name))


publish = _build_statement("publish")
"""Insert one event. The row count is 1 if it was written."""
publish_told = _build_statement("publish_told")
"""Insert one event. Returns a row if it was written."""
publish_ringing = _build_statement("publish_ringing")
"""Insert one event, and ring if the flag is up. Returns a row if it was written, with whether it rang."""
publish_unheard = _build_statement("publish_unheard")
"""Insert one event, and ring if wanted. Fails if it was not written."""
refuse_unwritten = _build_statement("refuse_unwritten")
"""Fail, and so abort the transaction, because an event was not written."""
publish_several = _build_statement("publish_several")
"""Insert several events. Fails unless all were written."""
publish_several_ringing = _build_statement("publish_several_ringing")
"""Insert several events, and ring if the flag is up. Returns whether it rang. Fails unless all were written."""
ring = _build_statement("ring")
"""Ring for partitions if the flag is up. Returns whether it rang."""
publish_once = _build_statement("publish_once")
"""Insert one event with an idempotency key.

Returns whether the key was unused. Fails if it was, but nothing was written.
"""
publish_once_ringing = _build_statement("publish_once_ringing")
"""Insert as `publish_once` does, and ring."""
take_keys = _build_statement("take_keys")
"""Take the idempotency keys of several events. Returns the positions of the keys that were unused."""
used_keys = _build_statement("used_keys")
"""Return how many of the idempotency keys exist."""
cancel = _build_statement("cancel")
"""Cancel a delayed event. Returns whether that was in time."""
publish_clock = _build_statement("publish_clock")
"""Return the database's clock in microseconds since 1970, for events that are copied."""
publish_copy = _build_statement("publish_copy", load_plain_query)
"""COPY events whose times are all left to the database."""
publish_copy_timed = _build_statement("publish_copy_timed", load_plain_query)
"""COPY events of which some have times of their own."""
publish_mark = _build_statement("publish_mark")
"""Note in the transaction that a batch was published."""
published_marks = partial(load_query, "published_marks", "partbox")
"""Return the batches that no savepoint has rolled back."""


def build_restored_marks(marks: str) -> bytes:
    """Return SQL that restores the list of published batches after a reset of the session's settings."""
    # The list is the `marks` in the setting `partbox.published`.
    # One statement stores all marks.
    return load_script("published_anew", marks=Literal(marks))


publish_xid = partial(load_query, "publish_xid", "partbox")
"""Return the transaction's id, for a later `published_status`."""
published_status = partial(load_query, "published_status", "partbox")
"""Return the state of a transaction: committed, aborted, or in progress."""
inbox_first_time = _build_statement("inbox_first_time")
"""Note that a consumer has seen an event. Returns a row if it is the first time."""
inbox_seen = _build_statement("inbox_seen")
"""Try the same again. Returns the lines of the executed plan, which count the rows that were in the way."""
django_newest = _build_statement("django_newest")
"""Return the highest record id that was drawn."""
django_states = _build_statement("django_states")
"""Return id, subscription and state of the given records."""
django_published = _build_statement("django_published")
"""Return an id at or a little above the record that this session published last."""
django_task = _build_statement("django_task")
"""Return path, payload, time, status, attempts, error and traceback of a task."""


class _Commits(Protocol):
    def commit(self) -> None: ...


class _DjangoProxy(Protocol):
    """Django's `connection` object, which passes attributes on to the real connection and has no `commit`."""

    def __getattr__(self, item: Any, /) -> Any: ...

    def __contains__(self, key: Any, /) -> bool: ...


AnySync = _Commits | _DjangoProxy
"""A connection or session of psycopg, SQLAlchemy, SQLModel or Django, or one that an adapter is registered for."""


class _AsyncCommits(Protocol):
    async def commit(self) -> None: ...


class AsyncpgConnection(Protocol):
    """A database connection of the library asyncpg, recognized by two of its methods."""

    def is_in_transaction(self) -> bool: ...

    async def fetch(self, query: Any, /, *args: Any) -> Any: ...


AnyAsync = _AsyncCommits | AsyncpgConnection
"""A connection or session of psycopg, SQLAlchemy or asyncpg, or one that an adapter is registered for."""
