"""What others may rely on; `schemas/` holds the JSON Schema of each event."""

from pydantic import BaseModel

import partbox


@partbox.event(aggregate_type="Order", key="order_id")
class OrderPlaced(BaseModel):
    """An order was written, and its reference is unique."""

    order_id: int
    reference: str
    total: int
