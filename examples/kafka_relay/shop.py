"""A shop that publishes; it knows nothing of Kafka."""

from dataclasses import dataclass

import psycopg

import partbox

outbox = partbox.Outbox()


@partbox.event(aggregate_type="Order", key="order_id")
@dataclass
class OrderPlaced:
    """An order was placed, and is to be charged once."""

    order_id: int
    total: int


if __name__ == "__main__":
    with psycopg.connect(outbox.dsn) as conn:  # commits at its end
        conn.execute("create table if not exists orders (id bigint generated always as identity, total int)")
        for total in (42, 7):
            (order,) = conn.execute("insert into orders (total) values (%s) returning id", [total]).fetchone()
            outbox.publish(conn, OrderPlaced(order, total))
