"""Names of every size in records that were inserted directly: they are held up to the window, and nothing is lost."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from rig import Rig
from waiting import eventually

from partbox import Outbox, RetryAfterError

WINDOW = 2**20
SIZE = 150_000
COUNT = 40
NAMES = ("event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type")
Conn = psycopg.Connection[Any]


@pytest.fixture
def rig(dsn: str) -> Iterator[Rig]:
    with closing(Rig(dsn, range(16), window_bytes=WINDOW)) as rig:
        yield rig


def write(conn: Conn, name: str, *, fills: str = "repeat('x', {})", delay: str | None = None) -> None:
    """Events with a large value of this column; a random text cannot be compressed."""
    values = {"event_type": "'T'", "aggregate_type": "'Key'", "aggregate_id": "g::text", "tenant_id": "null"}
    columns = values | {"content_type": "null", name: f"g || {fills.format(SIZE)}"}
    conn.execute(
        f"insert into partbox.record (partition, event_id, payload, available_at, {', '.join(columns)})"
        f" select 5, gen_random_uuid(), '1', clock_timestamp() + %s::interval, {', '.join(columns.values())}"
        f" from generate_series(1, {COUNT}) g",
        [delay],
    )


def size_of(event: Any, name: str) -> int:
    return len(getattr(event, name) or "")


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "fills",
    ["repeat('x', {})", "(select left(string_agg(md5(n::text), ''), {}) from generate_series(1, 4700) n)"],
    ids=["compressed", "not compressed"],
)
@pytest.mark.every_version("the sizes of values")
def test_large_names_are_held_up_to_the_window_and_one_more(conn: Conn, rig: Rig, name: str, fills: str) -> None:
    write(conn, name, fills=fills)
    got: list[int] = []
    most = 0
    for _ in range(150):
        got += rig.read()
        assert all(size_of(event, name) > SIZE - 10 for event in rig.events.values())
        most = max(most, sum(size_of(event, name) for event in rig.events.values()))
        if rig.events:
            rig.done(min(rig.events))
            rig.save()
        if len(got) == COUNT and not rig.events:
            break
    assert got == [*range(1, COUNT + 1)]
    assert WINDOW / 4 < most <= WINDOW + SIZE + 10
    assert rig.partition().payload_bytes.total == 0


@pytest.mark.parametrize("name", ["event_type", "aggregate_type", "aggregate_id"])
def test_a_delayed_event_is_parked_under_its_own_names(conn: Conn, rig: Rig, name: str) -> None:
    write(conn, name, delay="1 hour")
    for _ in range(80):
        assert rig.read() == []
    parks = {record_id: each.park for record_id, each in rig.partition().parked.pending.items()}
    records = conn.execute("select id, event_type, aggregate_type, aggregate_id from partbox.record").fetchall()
    assert parks.keys() == {id for id, *_ in records}
    for id, event_type, aggregate_type, aggregate_id in records:
        park = parks[id]
        assert (park.event_type[:9], park.aggregate_type[:9]) == (event_type[:9], aggregate_type[:9])
        assert park.aggregate_id is not None
        assert park.aggregate_id[:9] == aggregate_id[:9]
        assert max(map(len, (park.event_type, park.aggregate_type, park.aggregate_id))) < 200  # not copied whole
    assert rig.partition().payload_bytes.total == 0


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


def test_what_comes_while_a_parked_event_of_its_long_key_runs_waits_for_it(dsn: str, conn: Conn) -> None:
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
