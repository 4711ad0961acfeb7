"""A shop that confirms its orders: the application of the compose file."""

from partbox import DeliveredEvent, Outbox

outbox = Outbox()


@outbox.on("OrderPlaced", aggregate_type="Order")
def confirm(event: DeliveredEvent) -> None:
    print(f"order {event.aggregate_id} is confirmed: {event.payload}\n", end="", flush=True)


if __name__ == "__main__":
    with outbox.transaction() as conn:
        outbox.publish(conn, "OrderPlaced", {"total": 42}, aggregate_type="Order", aggregate_id="7")
