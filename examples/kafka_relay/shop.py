"""A shop that publishes; it knows nothing of Kafka."""

import psycopg

from partbox import Outbox

outbox = Outbox()

if __name__ == "__main__":
    with psycopg.connect(outbox.dsn) as conn:  # commits at its end
        conn.execute("create table if not exists orders (id bigint generated always as identity, total int)")
        for total in (42, 7):
            (order,) = conn.execute("insert into orders (total) values (%s) returning id", [total]).fetchone()
            outbox.publish(conn, "OrderPlaced", {"total": total}, aggregate_type="Order", aggregate_id=order)
