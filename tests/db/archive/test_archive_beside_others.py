"""The archive beside those who publish and purge, and the right it needs."""

import threading
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from purgeable import Planted
from roles import Cast
from waiting import eventually

from partbox.archive.errors import ZSTD, import_library
from partbox.archive.files import open_source
from partbox.imports import ImportFilter, restore_events
from partbox.operations.purge import purge
from partbox.settings import load

PUBLISH = (
    "insert into partbox.record (partition, event_id, event_type, payload)"
    " select g % 256, gen_random_uuid(), 'T', to_json(g) from generate_series(1, 5) g returning event_id::text"
)


def event_ids(place: Path) -> list[str]:
    found = []
    for path in place.glob("record-*"):
        with import_library(ZSTD).open(path, "rt", encoding="utf-8") as lines:
            found += [orjson.loads(line)["event_id"] for line in lines]
    return found


def test_every_record_purged_beside_live_traffic_is_in_exactly_one_archive_file(
    conn: psycopg.Connection[Any], dsn: str, place: Path
) -> None:
    conn.execute("delete from partbox.subscription")  # so age alone decides, and nothing is held back by a cursor
    published: list[str] = []
    over = threading.Event()

    def publish(number: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            for turn in range(40):
                with mine.transaction(force_rollback=turn % 7 == number):
                    rows = mine.execute(PUBLISH).fetchall()
                if turn % 7 != number:
                    published.extend(event_id for (event_id,) in rows)

    def keep() -> None:
        while not over.is_set():
            purge(lambda: dsn, load(archive=str(place), retain_done=0))

    def obey() -> None:
        while not over.is_set():
            purge(lambda: dsn, load(retain_done=0))

    purge(lambda: dsn, load(archive=str(place), retain_done=0))
    publishers = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
    purgers = [threading.Thread(target=keep), threading.Thread(target=obey)]
    for thread in (*publishers, *purgers):
        thread.start()
    for thread in publishers:
        thread.join()
    over.set()
    for thread in purgers:
        thread.join()

    def is_empty() -> bool:
        purge(lambda: dsn, load(archive=str(place), retain_done=0))
        return conn.execute("select from partbox.record limit 1").fetchone() is None

    eventually(is_empty)
    assert len(published) > 400
    assert sorted(event_ids(place)) == sorted(published)


def test_the_worker_role_can_archive_but_needs_the_publisher_role_to_import(
    planted: Planted, conn: psycopg.Connection[Any], cast: Cast, place: Path
) -> None:
    planted.record(1)
    conn.execute("select setval('partbox.record_id_seq', 1)")
    planted.consume(1)
    settings = load(archive=str(place))

    done = purge(lambda: cast.of("worker"), settings)

    assert (done.archived, done.records, done.unarchived) == (1, 1, None)
    source = open_source(str(place))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        restore_events(lambda: cast.of("worker"), load(), source, ImportFilter())
    conn.execute(f"grant {cast.publisher} to {cast.worker}")
    assert restore_events(lambda: cast.of("worker"), load(), source, ImportFilter()).imported == 1
    with pytest.raises(psycopg.Error):
        purge(lambda: cast.of("publisher"), settings)
