"""The outbox and its handlers."""

from contextlib import contextmanager

from django.db import close_old_connections

from partbox import Outbox
from shop.models import Order

outbox = Outbox()


@outbox.intercept
@contextmanager
def as_around_a_request(event):
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@outbox.on("OrderPlaced", aggregate_type="Order")
def confirm(event):
    Order.objects.filter(id=event.aggregate_id).update(confirmed=True)
    print(f"order {event.aggregate_id} over {event.payload['total']} is confirmed\n", end="", flush=True)
