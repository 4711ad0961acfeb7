"""Events as a handler gets them, without a database."""

from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent


def delivered(
    id: int, key: str | None = "k", payload: bytes = b"{}", *, aggregate_type: str = "Order", tenant: str | None = None
) -> DeliveredEvent:
    event_id, unknown = id.to_bytes(16), None
    row = (5, id, event_id, "Placed", aggregate_type, key, tenant, payload, *(unknown,) * 4, bytes(8), bytes(8))
    return DeliveredEvent(row, ClaimContext(1, "default", Codecs()))
