"""Names of every size in records that were inserted directly: order holds, and nothing is lost."""

import threading
from typing import Any

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox, RetryAfterError

SIZE = 150_000
Conn = psycopg.Connection[Any]


@pytest.mark.parametrize("name", ["aggregate_type", "aggregate_id"])
def test_order_holds_over_a_failure_and_a_restart_for_keys_that_are_kept_by_their_digest(
    dsn: str, conn: Conn, name: str
) -> None:
    names = {"aggregate_type": "Key", "aggregate_id": "7"} | {name: "x" * SIZE}
    for number, last in ((1, "a"), (2, "a"), (3, "b"), (4, "a")):  # they differ in their last character alone
        values = {**names, name: names[name] + last}
        conn.execute(
            "insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)"
            " values (5, gen_random_uuid(), 'T', %s, %s, to_json(%s::int))",
            [values["aggregate_type"], values["aggregate_id"], number],
        )
    seen: list[int] = []
    fails = [True]

    def handle(event: Any) -> None:
        seen.append(event.payload)
        if event.payload == 1 and fails[0]:
            raise RetryAfterError("1h")

    outbox = Outbox(dsn)
    outbox.register(handle, "T")
    states = "select record_id, state, blocks from partbox.parked order by 1"
    blocked = [(1, "retrying", True), (2, "held", True), (4, "held", True)]
    with outbox.worker():
        eventually(lambda: conn.execute(states).fetchall() == blocked)
    assert sorted(seen) == [1, 3]
    assert conn.execute("select max(length(aggregate_type || aggregate_id)) < 400 from partbox.parked").fetchone() == (
        True,
    )
    fails[0] = False
    for key in outbox.blocked.list():
        assert outbox.blocked.retry_now(key.aggregate_type, key.aggregate_id)
    assert outbox.drain()
    assert [number for number in seen if number != 3] == [1, 1, 2, 4]


def test_an_event_waits_for_the_running_parked_event_of_its_long_key(dsn: str, conn: Conn) -> None:
    insert = (
        "insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)"
        " values (5, gen_random_uuid(), 'T', 'Key', %s, to_json(%s::int))"
    )
    seen: list[tuple[int, str]] = []
    again, over = threading.Event(), threading.Event()

    def handle(event: Any) -> None:
        seen.append((event.payload, "begins"))
        if event.payload == 1:
            if event.attempt == 1:
                raise RetryAfterError("10ms")
            again.set()
            over.wait(120)
        seen.append((event.payload, "ends"))

    outbox = Outbox(dsn)
    outbox.register(handle, "T")
    conn.execute(insert, ["x" * SIZE, 1])
    with outbox.worker():
        assert again.wait(120)
        conn.execute(insert, ["x" * SIZE, 2])
        conn.execute(insert, ["another", 3])
        eventually(lambda: (3, "ends") in seen)
        assert (2, "begins") not in seen
        over.set()
        eventually(lambda: (2, "ends") in seen)
    assert seen.index((1, "ends")) < seen.index((2, "begins"))
