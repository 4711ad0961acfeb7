"""One shop in two databases: `python shop.py` sells in both, `python shop.py north` in one."""

import os
import sys

import psycopg

from partbox import Outbox

outbox = Outbox()  # without a database: publishers bring their connection, the worker is told which

TABLE = "create table if not exists orders (id bigint generated always as identity, region text)"


@outbox.on("OrderPlaced", aggregate_type="Order")
def confirm(event):
    print(f"order {event.aggregate_id} of the {event.payload['region']} is confirmed\n", end="", flush=True)


def sell(region):
    with psycopg.connect(os.environ[region.upper()]) as conn:  # commits at its end
        conn.execute(TABLE)
        (order,) = conn.execute("insert into orders (region) values (%s) returning id", [region]).fetchone()
        outbox.publish(conn, "OrderPlaced", {"region": region}, aggregate_type="Order", aggregate_id=order)


if __name__ == "__main__":
    for region in sys.argv[1:] or ("north", "south"):
        sell(region)
