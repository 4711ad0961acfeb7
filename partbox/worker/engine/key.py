"""The aggregate key of an event: what its order is kept by.

Keys stay in memory, and in the table of parked rows, for as long as a key is blocked. So those of names that are longer
than any that publishing takes are made of their digests (EVIDENCE I11).
"""

from hashlib import sha256

from partbox.events import DeliveredEvent
from partbox.events.checks import MAX_ID

Key = tuple[str, str] | tuple[None, int]
"""(aggregate type, aggregate id), or (None, id) of an event without an aggregate id, which no other event shares."""


def key_of(event: DeliveredEvent) -> Key:
    aggregate_id = event.aggregate_id
    return (None, event.id) if aggregate_id is None else make_key(event.aggregate_type, aggregate_id)


def make_key(aggregate_type: str, aggregate_id: str) -> tuple[str, str]:
    """The key of these names, as they are in a record or a parked row."""
    return shorten(aggregate_type), shorten(aggregate_id)


def shorten(name: str) -> str:
    """The name, or its beginning and its digest if it is longer than any that is published; twice is as once."""
    return name if len(name) <= MAX_ID else f"{name[:100]}... sha256:{sha256(name.encode()).hexdigest()}"
