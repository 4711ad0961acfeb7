"""What leaves the log is in a file before, whatever fails or dies, and whoever purges."""

import os
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import orjson
import psycopg
import pytest
from purgeable import OLD, YOUNG, Planted, many

from partbox.archive import archiver
from partbox.archive.errors import ZSTD, import_library
from partbox.archive.files import parse_file_name
from partbox.db.operator import archive as steps
from partbox.db.operator import segments
from partbox.operations.purge import Purged, purge
from partbox.segments import maintain_segments
from partbox.settings import load

Conn = psycopg.Connection[Any]
Purge = Callable[..., Purged]


def ids(place: Path) -> list[int]:
    """The ids in the files of an archive, in their order."""
    found = []
    for path in sorted(each for each in place.iterdir() if parse_file_name(each.name)):
        with import_library(ZSTD).open(path, "rt", encoding="utf-8") as lines:
            found += [orjson.loads(line)["id"] for line in lines]
    return found


def drawn(conn: Conn, id: int) -> None:
    conn.execute("select setval('partbox.record_id_seq', %s)", [id])


def test_expired_records_are_archived_in_a_file_before_they_are_purged(
    planted: Planted, conn: Conn, purged: Purge, place: Path
) -> None:
    for id in range(1, 8):
        planted.record(id, id % 3, OLD if id < 6 else YOUNG)
    drawn(conn, 7)
    planted.consume(7)

    done = purged()

    assert (done.archived, done.files, done.records, done.unarchived) == (5, 1, 5, None)
    assert ids(place) == [1, 2, 3, 4, 5]
    assert planted.left() == [6, 7]
    assert planted.meta()["archived_id"] == "5"
    (path,) = place.iterdir()
    assert path.name.startswith("record-0000000000000000001-0000000000000000005-")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_record_that_a_subscription_still_needs_is_archived_once_and_purged_later(
    planted: Planted, conn: Conn, purged: Purge, place: Path
) -> None:
    many(conn, 20, partitions=4)
    drawn(conn, 20)
    planted.consume(10)
    assert (purged().records, len(ids(place))) == (10, 20)
    planted.consume(20)
    again = purged()
    assert (again.archived, again.records) == (0, 10)
    assert ids(place) == list(range(1, 21))


def test_a_segment_is_emptied_once_it_is_archived(
    planted: Planted, small: Conn, purged: Purge, place: Path, dsn: str
) -> None:
    many(small, 250, partitions=8)
    planted.consume(1000)
    steps.begin_archive(small, "partbox")
    assert segments.empty_segment(small, "partbox", 0, 0).problem == "archive"

    done = purged()

    assert (done.archived, done.segments) == (250, 3)
    assert ids(place) == list(range(1, 251))
    assert planted.left() == []


def test_a_purge_without_the_archive_setting_removes_no_record_that_is_not_archived(
    planted: Planted, small: Conn, purged: Purge, place: Path, dsn: str
) -> None:
    many(small, 150)
    planted.consume(1000)
    steps.begin_archive(small, "partbox")

    other = purge(lambda: dsn, load())
    assert not maintain_segments(lambda: dsn, load()).emptied
    assert (other.records, other.segments, len(planted.left())) == (0, 0, 150)

    steps.note_done(small, "partbox", 100)
    assert purge(lambda: dsn, load()).segments == 1
    assert planted.left() == list(range(100, 151)), "the next one is archived in part"
    assert purged().archived == 50
    assert (planted.left(), ids(place)) == ([], list(range(101, 151)))


def test_purges_go_on_without_an_archive_once_archiving_has_been_ended(planted: Planted, conn: Conn, dsn: str) -> None:
    planted.record(1)
    drawn(conn, 1)
    planted.consume(1)
    steps.begin_archive(conn, "partbox")
    assert purge(lambda: dsn, load()).records == 0
    assert steps.end_archive(conn, "partbox")
    assert not steps.end_archive(conn, "partbox")
    assert purge(lambda: dsn, load()).records == 1


def test_archiving_waits_for_an_open_transaction_that_has_drawn_a_lower_id(
    planted: Planted, conn: Conn, purged: Purge, place: Path, dsn: str
) -> None:
    with psycopg.connect(dsn) as late:
        late.execute("insert into partbox.record (partition, event_id, event_type, created_at)"
                     " values (0, gen_random_uuid(), 'T', now() - interval '9 days')")  # fmt: skip
        conn.execute("insert into partbox.record (partition, event_id, event_type, created_at)"
                     " values (0, gen_random_uuid(), 'T', now() - interval '9 days')")  # fmt: skip
        conn.execute("delete from partbox.subscription")
        held = purged()
        assert (held.archived, held.records) == (0, 0), "one of them would be in no file, and gone"
        late.commit()
    done = purged()
    assert (done.archived, done.records) == (2, 2)
    assert (ids(place), planted.left()) == ([1, 2], [])


def test_archiving_goes_on_up_to_an_older_fence_beside_a_long_transaction(
    planted: Planted, conn: Conn, purged: Purge, dsn: str
) -> None:
    planted.record(1)
    drawn(conn, 1)
    planted.consume(1)
    assert steps.settle_ids(conn, "partbox") == 1
    with psycopg.connect(dsn) as other:
        other.execute("create table own_business ()")
        assert purged().archived == 1
        drawn(conn, 2)
        assert steps.settle_ids(conn, "partbox") == 1
        assert steps.settle_ids(conn, "partbox") == 1
        other.commit()
    assert steps.settle_ids(conn, "partbox") == 2


def test_a_kill_before_a_file_is_noted_leaves_its_records_to_be_archived_a_second_time(
    planted: Planted, conn: Conn, purged: Purge, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(conn, 5)
    drawn(conn, 5)
    planted.consume(5)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archiver.steps, "note_done", dies)
        with pytest.raises(KeyboardInterrupt):
            purged()
    assert (ids(place), len(planted.left())) == ([1, 2, 3, 4, 5], 5)
    planted.record(6)
    drawn(conn, 6)
    planted.consume(6)
    assert purged().archived == 6
    assert ids(place) == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]
    assert planted.left() == []


def test_a_kill_before_the_rename_leaves_no_file_that_a_reader_would_read(
    planted: Planted, conn: Conn, purged: Purge, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(conn, 5)
    drawn(conn, 5)
    planted.consume(5)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            purged()
    assert (list(place.iterdir()), planted.meta()["archived_id"]) == ([], "0")
    abandoned = place / ".record-x.part"
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (0, 0))
    recent = place / ".record-y.part"
    recent.write_bytes(b"half")
    assert purged().archived == 5
    assert not abandoned.exists()
    assert recent.exists()


def test_records_stay_in_the_log_while_the_archive_is_full_and_archiving_is_tried_again(
    planted: Planted, conn: Conn, purged: Purge, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(conn, 5)
    drawn(conn, 5)
    planted.consume(5)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = purged()
    assert done.unarchived == f"archive '{place}': No space left on device: make room there"
    assert (done.archived, done.records, len(planted.left())) == (0, 0, 5)
    assert "No space left" in planted.meta()["archive_failed"]
    first = orjson.loads(planted.meta()["archive_failed"])["since"]
    assert purged(archive="/proc/nowhere").unarchived
    assert orjson.loads(planted.meta()["archive_failed"])["since"] == first
    assert (purged().archived, planted.left()) == (5, [])
    assert planted.meta()["archive_failed"] is None


def test_a_directory_whose_parent_is_missing_is_not_made(
    planted: Planted, conn: Conn, purged: Purge, tmp_path: Path
) -> None:
    planted.record(1)
    drawn(conn, 1)
    done = purged(archive=str(tmp_path / "not" / "mounted"))
    assert done.unarchived
    assert done.unarchived.endswith("No such file or directory: create it, or name another place")
    assert not (tmp_path / "not").exists()


def test_an_archive_is_split_into_files_of_limited_size_and_each_is_noted(
    planted: Planted, conn: Conn, purged: Purge, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(conn, 25)
    drawn(conn, 25)
    monkeypatch.setattr(archiver, "FILE_RECORDS", 10)
    monkeypatch.setattr(archiver, "READ_RECORDS", 4)
    notes: list[int] = []
    done = steps.note_done
    monkeypatch.setattr(
        archiver.steps, "note_done", lambda conn, schema, id: (notes.append(id), done(conn, schema, id))
    )
    assert purged().files == 3
    assert notes == [12, 24, 25]
    assert ids(place) == list(range(1, 26))


@pytest.mark.parametrize("name", ["event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type"])
def test_one_read_fetches_fewer_records_when_their_names_are_large(planted: Planted, conn: Conn, name: str) -> None:
    many(conn, 25)
    conn.execute(f"update partbox.record set {name} = repeat('x', 100000)")
    assert len(steps.read_next_rows(conn, "partbox", 0, 25, 0.0, 100, 350_000)) == 3


def test_a_stop_keeps_the_files_that_are_whole(
    planted: Planted, conn: Conn, purged: Purge, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(conn, 25)
    drawn(conn, 25)
    monkeypatch.setattr(archiver, "FILE_RECORDS", 10)
    monkeypatch.setattr(archiver, "READ_RECORDS", 10)
    looks: list[None] = []

    def stopped() -> bool:
        looks.append(None)
        return len(looks) > 5

    done = purged(stopped=stopped)
    assert not done.complete
    assert ids(place) == list(range(1, int(planted.meta()["archived_id"]) + 1))
    assert purged().complete
    assert ids(place) == list(range(1, 26))


def test_only_one_process_archives_at_a_time(
    planted: Planted, conn: Conn, purged: Purge, dsn: str, place: Path
) -> None:
    planted.record(1)
    drawn(conn, 1)
    with psycopg.connect(dsn, autocommit=True) as other, steps.hold_archive_lock(other, "partbox") as archive_lock:
        assert archive_lock
        assert purged().archived == 0
        assert not place.exists()
    assert purged().archived == 1


def test_a_supervisor_archives_once_a_segment_is_full_or_a_quarter_of_the_retention_is_over(
    planted: Planted, small: Conn, purged: Purge, place: Path
) -> None:
    planted.record(501, age=8.0)
    planted.record(601, age=7.5)
    planted.record(602, age=6.5)
    assert purged(patient=True, retain_done="7d").archived == 2, "a full segment is due, and all that has expired"
    small.execute("delete from partbox.record")
    planted.record(1001, age=8.0)
    drawn(small, 1001)
    assert purged(patient=True, retain_done="7d").archived == 0
    planted.record(1002, age=8.9)
    drawn(small, 1002)
    assert purged(patient=True, retain_done="7d").archived == 0, "it is the oldest id that counts"
    assert purged(patient=True, retain_done="6d").archived == 2


def test_a_young_record_with_a_lower_id_than_an_expired_one_is_archived_with_it(
    planted: Planted, conn: Conn, purged: Purge, place: Path
) -> None:
    for id, age in ((1, OLD), (2, YOUNG), (3, OLD), (4, YOUNG)):
        planted.record(id, age=age)
    drawn(conn, 4)
    planted.consume(4)
    assert purged().archived == 3
    assert ids(place) == [1, 2, 3]
    assert planted.left() == [2, 4]


def test_segments_are_archived_before_they_are_emptied_for_the_size_of_the_log(
    planted: Planted, small: Conn, purged: Purge, place: Path
) -> None:
    many(small, 150, days=0.1)
    planted.consume(1000)
    done = purged(retain_size="1kB")
    assert (done.segments, ids(place)) == (2, list(range(1, 151)))


def test_dead_records_are_archived_with_the_others_and_stay(
    planted: Planted, small: Conn, purged: Purge, place: Path
) -> None:
    many(small, 50)
    planted.consume(1000)
    planted.park(7, "dead", age=1.0, partition=7)
    assert purged().segments == 1
    assert planted.left() == [7]
    assert ids(place) == list(range(1, 51))
    planted.park(7, "dead", "none", age=1.0, partition=7)
    small.execute("delete from partbox.parked")
    done = purged()
    assert (done.archived, planted.left()) == (0, [])


def test_a_purge_without_the_library_says_what_to_install(
    planted: Planted, conn: Conn, purged: Purge, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.record(1)
    drawn(conn, 1)
    planted.consume(1)
    monkeypatch.setitem(__import__("sys").modules, ZSTD, None)
    assert purged().unarchived == f"the archive needs the library {ZSTD}: pip install 'partbox[archive]'"
    assert planted.left() == [1]


def test_every_file_is_synced_before_its_name_and_then_the_name(
    planted: Planted, conn: Conn, purged: Purge, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.record(1)
    drawn(conn, 1)
    steps_taken: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        steps_taken.append("folder" if S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(old: Any, new: Any) -> None:
        steps_taken.append("name")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    noted = steps.note_done
    monkeypatch.setattr(archiver.steps, "note_done", lambda *given: (steps_taken.append("noted"), noted(*given)))
    assert purged().archived == 1
    assert steps_taken == ["file", "name", "folder", "noted"]
