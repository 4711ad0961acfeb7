"""Orders, and a read model of what each customer has ordered: `python shop.py sell`, `show` or `clear`."""

import sys

import psycopg

from partbox import Outbox

outbox = Outbox()

TABLE = "create table if not exists revenue (customer text primary key, orders int not null, total int not null)"
ADD = """
insert into revenue values (%(customer)s, 1, %(total)s)
on conflict (customer) do update set orders = revenue.orders + 1, total = revenue.total + excluded.total
"""
TAKE_OFF = "update revenue set orders = orders - 1, total = total - %(total)s where customer = %(customer)s"


@outbox.on("OrderPlaced", subscription="revenue", transactional=True)
def add(event, conn):
    conn.execute(ADD, event.payload)


@outbox.on("OrderCancelled", subscription="revenue", transactional=True)
def take_off(event, conn):
    conn.execute(TAKE_OFF, event.payload)


def sell():
    """The customer is the aggregate: what one does is counted in its order."""
    with psycopg.connect(outbox.dsn) as conn:  # commits at its end
        conn.execute(TABLE)
        for event_type, customer, total in (
            ("OrderPlaced", "ada", 42),
            ("OrderPlaced", "ada", 8),
            ("OrderPlaced", "bob", 7),
            ("OrderCancelled", "ada", 42),
        ):
            order = {"customer": customer, "total": total}
            outbox.publish(conn, event_type, order, aggregate_type="Customer", aggregate_id=customer)


def show():
    with psycopg.connect(outbox.dsn) as conn:
        for customer, orders, total in conn.execute("select * from revenue order by customer"):
            print(f"{customer}: {total} from {orders}")


def clear():
    with psycopg.connect(outbox.dsn) as conn:
        conn.execute("truncate revenue")


if __name__ == "__main__":
    {"sell": sell, "show": show, "clear": clear}[sys.argv[1]]()
