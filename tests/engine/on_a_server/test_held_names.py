"""Names of every size in records that were inserted directly are held up to the window."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from owner import Owner

WINDOW = 2**20
SIZE = 150_000
COUNT = 40
NAMES = ("event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type")
Conn = psycopg.Connection[Any]


@pytest.fixture
def owner(owner_with: Callable[..., Owner]) -> Owner:
    return owner_with(window_bytes=WINDOW)


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
def test_large_names_are_held_in_memory_up_to_the_window_plus_one_event(
    conn: Conn, owner: Owner, name: str, fills: str
) -> None:
    write(conn, name, fills=fills)
    got: list[int] = []
    most = 0
    for _ in range(150):
        got += owner.read()
        assert all(size_of(event, name) > SIZE - 10 for event in owner.events.values())
        most = max(most, sum(size_of(event, name) for event in owner.events.values()))
        if owner.events:
            owner.done(min(owner.events))
            owner.save()
        if len(got) == COUNT and not owner.events:
            break
    assert got == [*range(1, COUNT + 1)]
    assert WINDOW / 4 < most <= WINDOW + SIZE + 10
    assert owner.partition().payload_bytes.total == 0


@pytest.mark.parametrize("name", ["event_type", "aggregate_type", "aggregate_id"])
def test_a_delayed_event_is_parked_under_its_own_names(conn: Conn, owner: Owner, name: str) -> None:
    write(conn, name, delay="1 hour")
    for _ in range(80):
        assert owner.read() == []
    parks = {record_id: each.parked_save for record_id, each in owner.partition().parked.pending_parks.items()}
    records = conn.execute("select id, event_type, aggregate_type, aggregate_id from partbox.record").fetchall()
    assert parks.keys() == {id for id, *_ in records}
    for id, event_type, aggregate_type, aggregate_id in records:
        park = parks[id]
        assert (park.event_type[:9], park.aggregate_type[:9]) == (event_type[:9], aggregate_type[:9])
        assert park.aggregate_id is not None
        assert park.aggregate_id[:9] == aggregate_id[:9]
        assert max(map(len, (park.event_type, park.aggregate_type, park.aggregate_id))) < 200  # not copied whole
    assert owner.partition().payload_bytes.total == 0
