"""The aggregate key of an event: what its order is kept by."""

from partbox.events import DeliveredEvent

Key = tuple[str, str] | tuple[None, int]
"""(aggregate type, aggregate id), or (None, id) of an event without an aggregate id, which no other event shares."""


def key_of(event: DeliveredEvent) -> Key:
    """The aggregate key of an event."""
    aggregate_id = event.aggregate_id
    return (None, event.id) if aggregate_id is None else (event.aggregate_type, aggregate_id)
