"""Worker processes get handlers with what they ask for, and upcasts, also those of a program itself."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from psycopg import Connection

PROGRAM = """
import sys
from dataclasses import dataclass
from decimal import Decimal

import msgspec
import psycopg

import partbox
from partbox import DeliveredEvent, Outbox

outbox = Outbox(sys.argv[1])


@partbox.event(aggregate_type="Order", key="order_id", version=2)
class Placed(msgspec.Struct):
    order_id: int
    total: Decimal


@partbox.event(aggregate_type="Order", key="order_id")
@dataclass
class Confirmed:
    order_id: int


@outbox.upcast(Placed, from_version=1)
def with_total(payload):
    return {**payload, "total": "0"}


@outbox.on(Placed)
def confirm(order: Placed, event: DeliveredEvent) -> None:
    assert type(order) is Placed and order.total == 0
    with psycopg.connect(sys.argv[1]) as conn:
        outbox.publish(conn, Confirmed(order.order_id))


@outbox.on_batch(Confirmed)
async def told(confirmed: list[Confirmed]) -> None:
    assert [type(each) for each in confirmed] == [Confirmed] * len(confirmed)


if __name__ == "__main__":
    with psycopg.connect(sys.argv[1]) as conn:
        outbox.publish(conn, "Placed", {"order_id": 7}, aggregate_type="Order", aggregate_id=7)
    sys.exit(outbox.run(processes=1, until_empty=True))
"""


def test_classes_of_a_program_reach_its_worker_processes(dsn: str, conn: Connection[Any], tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, str(program), dsn], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = conn.execute("select event_type, aggregate_id, headers->>'partbox-version' from partbox.record order by id")
    assert found.fetchall() == [("Placed", "7", None), ("Confirmed", "7", "1")]
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
