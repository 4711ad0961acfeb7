"""A shop: an order and its event are there together, or neither is."""

import psycopg

from partbox import Outbox

outbox = Outbox()

TABLE = "create table if not exists orders (id bigint generated always as identity, total int, confirmed bool)"


@outbox.on("OrderPlaced", aggregate_type="Order")
def confirm(event):
    """May be called again after a crash, which does no harm: the second time it changes nothing."""
    with psycopg.connect(outbox.dsn) as conn:
        conn.execute("update orders set confirmed = true where id = %s", [event.aggregate_id])
    print(f"order {event.aggregate_id} over {event.payload['total']} is confirmed\n", end="", flush=True)


def place(conn, total):
    """Writes an order, in the transaction of the caller."""
    (order,) = conn.execute("insert into orders (total) values (%s) returning id", [total]).fetchone()
    outbox.publish(conn, "OrderPlaced", {"total": total}, aggregate_type="Order", aggregate_id=order)
    if total < 0:
        raise ValueError(f"a total of {total}")


def main():
    with psycopg.connect(outbox.dsn, autocommit=True) as conn:
        conn.execute(TABLE)
        for total in (42, 7, -1):
            try:
                with conn.transaction():
                    place(conn, total)
            except ValueError as error:
                print(f"not placed: {error}")


if __name__ == "__main__":
    main()
