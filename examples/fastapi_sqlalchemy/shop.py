"""The outbox and its handlers: what the worker imports."""

from partbox import Outbox

outbox = Outbox()


@outbox.on("OrderPlaced", aggregate_type="Order")
async def confirm(event):
    print(f"order {event.aggregate_id} over {event.payload['total']} is confirmed", flush=True)
