"""Keys of lanes: the aggregate key of an event, which is the unit of order. Names that are longer than publishing
allows are shortened, because a blocked key stays in memory and in the table of parked rows."""

from hashlib import sha256

from partbox.events import DeliveredEvent
from partbox.events.checks import MAX_ID

# (aggregate type, aggregate id). An event without an aggregate id has (None, record id), which no other event shares.
Key = tuple[str, str] | tuple[None, int]


def key_of(event: DeliveredEvent) -> Key:
    """Return the ordering key of an event: its aggregate type and id. Events of one key run one after another."""
    # An event without an aggregate id gets a key of its own, which no other event shares.
    aggregate_id = event.aggregate_id
    return (None, event.id) if aggregate_id is None else make_key(event.aggregate_type, aggregate_id)


def make_key(aggregate_type: str, aggregate_id: str) -> tuple[str, str]:
    """Return the key that orders the events of an aggregate, from its type and id."""
    # The type and id may be from a record or from a parked row. Names that are too long are shortened.
    return shorten(aggregate_type), shorten(aggregate_id)


def shorten(name: str) -> str:
    """Return the name, or its first 100 characters and a SHA-256 digest if it is longer than `MAX_ID`."""
    # The result is short enough to keep in memory. A shortened name is returned unchanged.
    return name if len(name) <= MAX_ID else f"{name[:100]}... sha256:{sha256(name.encode()).hexdigest()}"
