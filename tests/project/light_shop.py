"""An application that publishes an event and delivers it by a worker in its own process. It prints the order, and how
psycopg speaks to the server; `scripts/wheel` and a test run it in an environment without extras."""

import subprocess
import sys
from dataclasses import dataclass

import psycopg

import partbox

outbox = partbox.Outbox(sys.argv[1])


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@partbox.event(aggregate_type="Order", key="order_id")
@dataclass
class OrderPlaced:
    order_id: int


@outbox.on(OrderPlaced)
def confirm(order: OrderPlaced) -> None:
    say(f"order {order.order_id} by psycopg ({psycopg.pq.__impl__})")


with psycopg.connect(outbox.dsn) as conn:
    outbox.publish(conn, OrderPlaced(7))
with outbox.worker() as worker:
    assert worker.wait_until_empty(60)
try:
    outbox.run()
except partbox.SettingsError as error:
    say(str(error))
command = subprocess.run([sys.executable, "-m", "partbox", "status"], stderr=subprocess.PIPE, text=True, check=False)
say(f"{command.returncode} {command.stderr.strip()}")
