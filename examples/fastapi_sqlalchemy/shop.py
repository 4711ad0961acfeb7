"""The outbox and its handlers: what the worker imports."""

from events import OrderPlaced

from partbox import Outbox

outbox = Outbox()


@outbox.on(OrderPlaced)
async def confirm(order: OrderPlaced):
    print(f"order {order.order_id} over {order.total} is confirmed\n", end="", flush=True)
