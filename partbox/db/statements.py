"""Named statements as text: those that an application's own library runs, through its adapter, on its own connection.

Each is kept for the schema it was composed for, so asking again costs a look-up.
"""

from functools import cache

from partbox.db.sql import bare, query

NO_SCHEMA = "partbox"  # of statements that name no table


@cache
def publish(schema: str) -> bytes:
    """Insert one event; the number of rows is 1 if it was written."""
    return query("publish", schema)


@cache
def publish_told(schema: str) -> bytes:
    """Insert one event; a row if it was written."""
    return query("publish_told", schema)


@cache
def publish_ringing(schema: str) -> bytes:
    """Insert one event, and ring; a row if it was written: whether anybody sleeps."""
    return query("publish_ringing", schema)


@cache
def publish_unheard(schema: str) -> bytes:
    """Insert one event, and ring if wanted; fails if it was not written."""
    return query("publish_unheard", schema)


@cache
def refuse_unwritten(schema: str) -> bytes:
    """Fail, and with it the transaction, because an event was not written."""
    return query("refuse_unwritten", schema)


@cache
def publish_several(schema: str) -> bytes:
    """Insert several events; fails unless all were written."""
    return query("publish_several", schema)


@cache
def publish_several_ringing(schema: str) -> bytes:
    """Insert several events, and ring; whether anybody sleeps. Fails unless all were written."""
    return query("publish_several_ringing", schema)


@cache
def ring(schema: str) -> bytes:
    """Ring for partitions; whether anybody sleeps."""
    return query("ring", schema)


@cache
def publish_once(schema: str) -> bytes:
    """Insert one event with an idempotency key; whether that was unused. Fails if it was and the event not written."""
    return query("publish_once", schema)


@cache
def publish_once_ringing(schema: str) -> bytes:
    """`publish_once`, which rings."""
    return query("publish_once_ringing", schema)


@cache
def take_keys(schema: str) -> bytes:
    """Take the idempotency keys of several events; the places of those that were unused."""
    return query("take_keys", schema)


@cache
def used_keys(schema: str) -> bytes:
    """The number of these idempotency keys that are there."""
    return query("used_keys", schema)


@cache
def publish_clock(schema: str) -> bytes:
    """The database's clock in microseconds since 1970, for events that are copied."""
    return query("publish_clock", schema)


@cache
def publish_copy(schema: str) -> bytes:
    """COPY of events that leave every time to the database."""
    return bare("publish_copy", schema)


@cache
def publish_copy_timed(schema: str) -> bytes:
    """COPY of events of which some have times of their own."""
    return bare("publish_copy_timed", schema)


@cache
def publish_mark(schema: str) -> bytes:
    """Note in the transaction that a batch was published."""
    return query("publish_mark", schema)


@cache
def published_marks() -> bytes:
    """The batches that no savepoint has taken back."""
    return query("published_marks", NO_SCHEMA)


@cache
def publish_xid() -> bytes:
    """The id of the transaction, to be asked for later."""
    return query("publish_xid", NO_SCHEMA)


@cache
def published_status() -> bytes:
    """The state of a transaction: committed, aborted, or in progress."""
    return query("published_status", NO_SCHEMA)


@cache
def inbox_first_time(schema: str) -> bytes:
    """Note that a consumer has seen an event; a row if it is the first time."""
    return query("inbox_first_time", schema)


@cache
def inbox_seen(schema: str) -> bytes:
    """Try the same again; the lines of the plan as it ran, which count the rows that were in the way."""
    return query("inbox_seen", schema)


@cache
def django_newest(schema: str) -> bytes:
    """The highest record id that was given out."""
    return query("django_newest", schema)


@cache
def django_published(schema: str) -> bytes:
    """An id at or a little above that of the record which this session has published last."""
    return query("django_published", schema)


@cache
def django_task(schema: str) -> bytes:
    """Path, payload, time, status, attempts, error and traceback of a task."""
    return query("django_task", schema)
