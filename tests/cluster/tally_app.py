"""An application that counts in the same database: a `Count` by a transactional handler, a `Step` by a plain one.

Both leave a trace, whose ids tell in what order they came. An event fails as many times as its `fails` say.
"""

import os
from functools import cache
from typing import Any

import psycopg

from partbox import Outbox

outbox = Outbox()

COUNT = """
with counted as (update tally set total = total + 1 where aggregate = %(aggregate)s)
insert into trace (aggregate, seq, counted) values (%(aggregate)s, %(seq)s, true)
"""
STEP = "insert into trace (aggregate, seq, counted) values (%(aggregate)s, %(seq)s, false)"


def fails(event: Any) -> None:
    if event.attempt <= event.payload.get("fails", 0):
        raise ValueError("not yet")


def numbers(event: Any) -> dict[str, Any]:
    return {"aggregate": event.aggregate_id, "seq": event.payload["seq"]}


@cache
def own() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["PARTBOX_DSN"], autocommit=True)


@outbox.on("Count", transactional=True, max_attempts=None)
def count(event: Any, conn: psycopg.Connection[Any]) -> None:
    conn.execute(COUNT, numbers(event))
    fails(event)  # after the effect, which is rolled back


@outbox.on("Step", max_attempts=None)
def step(event: Any) -> None:
    fails(event)
    own().execute(STEP, numbers(event))
