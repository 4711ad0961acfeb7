"""Whatever a record holds is the same after a file and back; events of an archive are published again, each once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from purgeable import Planted

from partbox import Event, Outbox
from partbox.archive.files import line_of, open_source, row_of
from partbox.db.operator.archive import ArchiveRow
from partbox.errors import PartboxError
from partbox.imports import ImportFilter, RestoreResult, restore_events
from partbox.operations.purge import Purged
from partbox.settings import load

Conn = psycopg.Connection[Any]
Purge = Callable[..., Purged]
Restore = Callable[..., RestoreResult]

COLUMNS = "event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload::text, payload_bytes, content_type, headers::text, available_at, occurred_at, partition"  # fmt: skip  # noqa: E501

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TIME = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
EVENTS = st.builds(
    lambda payload, raw, type, aggregate, tenant, headers, occurred, key: Event(
        type,
        raw if raw is not None else payload,
        aggregate_type="Order" if aggregate is not None else "__GLOBAL__",
        aggregate_id=aggregate,
        tenant_id=tenant,
        headers=headers,
        occurred_at=occurred,
        idempotency_key=key,
        content_type="application/octet-stream" if raw is not None else None,
    ),
    JSON,
    st.none() | st.binary(max_size=50),
    TEXT.filter(str.strip),
    st.none() | TEXT.filter(str.strip),
    st.none() | TEXT.filter(str.strip),
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), TEXT, max_size=3),
    st.none() | TIME,
    st.none() | st.uuids().map(str),
)
ODD = (
    "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'294276-12-31 23:59:59.999999Z'",
    "'2026-01-01 10:00:00.000001+05'",
)  # fmt: skip


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def restored(dsn: str, place: Path) -> Restore:
    """Import the archive of the test."""

    def run(*, wanted: ImportFilter | None = None, source: str | None = None, **given: Any) -> RestoreResult:
        return restore_events(lambda: dsn, load(), open_source(source or str(place)), wanted or ImportFilter(), **given)

    return run


def rows(conn: Conn) -> list[tuple[Any, ...]]:
    with conn.cursor(binary=True) as cursor:
        texts = COLUMNS.replace("available_at", "available_at::text").replace("occurred_at", "occurred_at::text")
        return cursor.execute(f"select {texts} from partbox.record order by id").fetchall()


def archived(conn: Conn, purged: Purge) -> None:
    """Archive the whole log, and empty it."""
    conn.execute("update partbox.partition set last_id = 1000000, floor_id = 1000000")
    purged(retain_done=0)
    assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
@given(events=st.lists(EVENTS, min_size=1, max_size=8))
def test_whatever_is_published_comes_back_the_same(
    events: list[Event], outbox: Outbox, conn: Conn, purged: Purge, restored: Restore, place: Path
) -> None:
    conn.execute("truncate partbox.record, partbox.imported, partbox.idempotency")
    for old in place.glob("*") if place.exists() else ():
        old.unlink()
    with outbox.transaction() as transaction:
        outbox.publish_many(transaction, events)
    before = rows(conn)
    archived(conn, purged)

    done = restored()

    assert (done.imported, done.complete) == (len(before), True)
    assert rows(conn) == before
    assert restored().before == len(before), "a second time brings nothing"
    assert len(rows(conn)) == len(before)


@pytest.mark.parametrize("time", ODD)
def test_times_outside_the_range_of_python_survive_archive_and_import(
    conn: Conn, purged: Purge, restored: Restore, time: str
) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, occurred_at)"
        f" values (partbox.partition_of('a'), gen_random_uuid(), 'T', {time})"
    )
    before = conn.execute("select occurred_at::text from partbox.record").fetchall()
    archived(conn, purged)
    assert restored().imported == 1
    assert conn.execute("select occurred_at::text from partbox.record").fetchall() == before


def test_json_comes_back_letter_for_letter(conn: Conn, purged: Purge, restored: Restore) -> None:
    text = '{ "a" : 1.0,\n\t"a":1e400, "u":"\\ud800", "z": 123456789012345678901234567890 }'
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload, headers)"
        " values (0, gen_random_uuid(), 'T', %s, %s)",
        [text, text],
    )
    archived(conn, purged)
    restored()
    assert conn.execute("select payload::text, headers::text from partbox.record").fetchall() == [(text, text)]


def test_an_import_keeps_future_due_times_and_drops_past_and_unreachable_ones(
    conn: Conn, purged: Purge, restored: Restore
) -> None:
    later = datetime.now(UTC) + timedelta(days=3)
    for due in (later, datetime.now(UTC), "294276-12-31 23:59:59.999999Z", "infinity"):
        conn.execute(
            "insert into partbox.record (partition, event_id, event_type, available_at)"
            " values (0, gen_random_uuid(), 'T', %s)",
            [due],
        )
    archived(conn, purged)
    restored()
    assert conn.execute("select available_at from partbox.record order by id").fetchall() == [
        (later,), (None,), (None,), (None,)
    ]  # fmt: skip


def test_an_archive_is_ordered_by_record_id(
    planted: Planted, conn: Conn, purged: Purge, restored: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        conn.execute(
            "insert into partbox.record (partition, event_id, event_type, payload)"
            " select 0, gen_random_uuid(), 'T', to_json(g) from generate_series(1, 10) g"
        )
        archived(conn, purged)
    assert (restored().files, restored().before) == (3, 30)
    numbers = [n for (n,) in conn.execute("select payload::text::int from partbox.record order by id")]
    assert numbers == [*range(1, 11)] * 3


def test_an_import_skips_records_that_are_still_in_the_log(
    planted: Planted, conn: Conn, purged: Purge, restored: Restore
) -> None:
    for id in (1, 2, 3):
        planted.record(id)
    conn.execute("select setval('partbox.record_id_seq', 3)")
    planted.consume(2)
    assert purged().records == 2
    done = restored()
    assert (done.imported, done.kept) == (2, 1)
    assert len(planted.left()) == 3


def test_an_import_takes_only_the_records_that_match_its_filter(conn: Conn, purged: Purge, restored: Restore) -> None:
    for number in range(4):
        conn.execute(
            "insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, created_at)"
            " values (0, gen_random_uuid(), %s, %s, %s, timestamptz '2026-01-01Z' + %s * interval '1 day')",
            ["AB"[number % 2], "Order", str(number), number],
        )
    archived(conn, purged)

    def count(**wanted: Any) -> int:
        return restored(wanted=ImportFilter(**wanted), dry_run=True).imported

    assert count() == 4
    assert count(types=("A",)) == 2
    assert count(since=datetime(2026, 1, 2, tzinfo=UTC)) == 3
    assert count(until=datetime(2026, 1, 2, tzinfo=UTC)) == 1
    assert count(aggregate_id="3") == 1
    assert count(aggregate_type="Other") == 0
    assert rows(conn) == []
    assert restored(wanted=ImportFilter(types=("A",))).imported == 2
    assert (done := restored()).imported == 2
    assert done.before == 2
    assert restored(name="june").imported == 4, "another name brings all again"


def test_an_import_that_was_stopped_halfway_is_continued_by_the_next_run(
    conn: Conn, purged: Purge, restored: Restore, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select 0, gen_random_uuid(), 'T', to_json(g) from generate_series(1, 30) g"
    )
    archived(conn, purged)
    monkeypatch.setattr("partbox.imports.passes.BATCH_ROWS", 10)
    seen: list[int] = []
    first = restored(progress=lambda sofar: seen.append(sofar.imported), is_stopped=lambda: bool(seen))
    assert (first.imported, first.complete, seen) == (10, False, [10])
    assert (restored().imported, restored().imported) == (20, 0)
    numbers = [n for (n,) in conn.execute("select payload::text::int from partbox.record order by id")]
    assert numbers == [*range(1, 31)]


def test_a_file_that_is_cut_short_or_damaged_is_reported(
    planted: Planted, conn: Conn, purged: Purge, restored: Restore, place: Path
) -> None:
    for id in range(1, 200):
        planted.record(id)
    conn.execute("select setval('partbox.record_id_seq', 200)")
    purged()
    (path,) = place.iterdir()
    whole = path.read_bytes()
    for broken, said in ((whole[:-3], "cut short"), (whole[:100] + b"\0\0\0" + whole[103:], "damaged")):
        path.write_bytes(broken)
        with pytest.raises(PartboxError, match=said):
            restored()
    path.write_bytes(whole + whole)
    assert restored(dry_run=True).read == 398, "frames that somebody has put together"


def test_lines_that_are_no_records_are_reported_with_their_line_number(restored: Restore, tmp_path: Path) -> None:
    row = ArchiveRow(1, 0, "00000000-0000-0000-0000-000000000001", "T", "A", None, None, "{}", None, None, None, None,
              "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z", True)  # fmt: skip
    good = line_of(row)
    assert row_of(good) == row
    path = tmp_path / "taken.jsonl"
    for bad, said in (
        (b"nothing", "it is not JSON"),
        (b"[1]", "it is no JSON object"),
        (b'{"id": 1}', "it has no partition"),
        (good.replace(b'"id":1', b'"id":-1'), "its id is no number from 0"),
        (good.replace(b'"id":1', b'"id":true'), "its id is no number from 0"),
        (good.replace(b'"partition":0', b'"partition":256'), "its partition is no number from 0 to 255"),
        (good.replace(b"-000000000001", b""), "its event_id is no UUID"),
        (good.replace(b'"payload":"{}"', b'"payload":{}'), "its payload is no text that PostgreSQL can store"),
        (good.replace(b'"payload":', b'"pay":'), "'pay' is no column of a record"),
        (good.replace(b'"payload":"{}"', b'"payload_bytes":"?"'), "its payload_bytes are not base64"),
    ):
        path.write_bytes(good + bad)
        with pytest.raises(PartboxError, match=f"line 2 of {path} is no record of an archive: {said}"):
            restored(source=str(path), dry_run=True)
    path.write_bytes(good.replace(b'"{}"', b'"{"'))
    with pytest.raises(PartboxError, match="is not a record that PostgreSQL accepts: invalid input syntax for type"):
        restored(source=str(path))
    path.write_bytes(good)
    assert restored(source=str(path)).imported == 1
