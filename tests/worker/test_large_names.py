"""Names of every size in records that were inserted directly: they are held up to the window, and nothing is lost."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from rig import Rig

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
    assert rig.partition().weight.bytes == 0


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
    assert rig.partition().weight.bytes == 0
