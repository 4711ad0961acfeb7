"""Publishers as unkind as they come: early xids, savepoints, aborts, two-phase commits, late commits, row locks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg

KEYS = 24
FREE = 6
PARTITIONS = 6
"""All keys live in so few: each partition has a few aggregates, and its window is full now and then."""
LATEST = 1.0
"""Seconds by which a commit may be delayed."""

TABLE = "create table if not exists public.aggregate (key integer primary key, published integer not null default 0)"
PUBLISH = """
    insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
    values (%(partition)s, gen_random_uuid(), 'Counted', %(type)s, %(id)s,
            json_build_object('n', %(n)s::integer))
"""


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLE)
        conn.execute("insert into public.aggregate (key) select generate_series(1, %s)", [KEYS])


@contextmanager
def writing(dsn: str, random: Random, count: int = 10) -> Iterator[None]:
    """So many publishers at work until the end of the block; each ends what it has begun."""
    enough = threading.Event()
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=_write, args=(dsn, Random(random.random()), enough, failures)) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _write(dsn: str, random: Random, enough: threading.Event, failures: list[BaseException]) -> None:
    try:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not enough.is_set():
                _transaction(conn, random, enough)
    except BaseException as error:
        failures.append(error)


def _transaction(conn: psycopg.Connection[Any], random: Random, enough: threading.Event) -> None:
    conn.execute("begin")
    if random.random() < 0.3:
        conn.execute("select pg_current_xact_id()")
    keys = sorted(random.choices(range(1, KEYS + 1), k=random.randint(1, 3)))  # in order: no deadlocks
    for key in keys:
        if random.random() < 0.25:
            _publish_and_regret(conn, key, random)
        for _ in range(random.randint(1, 3)):
            publish(conn, key)
    if random.random() < 0.3:
        publish_freely(conn, random.randint(1, FREE))
    enough.wait(_delay(random))
    _end(conn, random, enough)


def publish(conn: psycopg.Connection[Any], key: int) -> None:
    """The next event of an aggregate whose row is locked: its number tells the order."""
    row = conn.execute("select published from public.aggregate where key = %s for update", [key]).fetchone()
    assert row is not None
    conn.execute("update public.aggregate set published = published + 1 where key = %s", [key])
    _insert(conn, "locked", key, row[0] + 1)


def publish_freely(conn: psycopg.Connection[Any], key: int) -> None:
    """An event of an aggregate that nobody locks: it has no order to keep."""
    _insert(conn, "free", key, 0)


def _insert(conn: psycopg.Connection[Any], kind: str, key: int, number: int) -> None:
    conn.execute(PUBLISH, {"partition": key % PARTITIONS, "id": f"{kind}-{key}", "type": kind, "n": number})


def _publish_and_regret(conn: psycopg.Connection[Any], key: int, random: Random) -> None:
    conn.execute("savepoint regret")
    publish(conn, key)
    if random.random() < 0.5:
        publish_freely(conn, key)
    conn.execute("rollback to savepoint regret")


def _delay(random: Random) -> float:
    """Mostly none."""
    chance = random.random()
    return LATEST * random.random() if chance < 0.03 else 0.02 * random.random() if chance < 0.3 else 0.0


def _end(conn: psycopg.Connection[Any], random: Random, enough: threading.Event) -> None:
    chance = random.random()
    if chance < 0.1:
        conn.execute("rollback")
    elif chance < 0.2:
        name = f"two-phase-{random.getrandbits(60)}"
        conn.execute(f"prepare transaction '{name}'")
        enough.wait(_delay(random))
        conn.execute(f"{'rollback' if random.random() < 0.3 else 'commit'} prepared '{name}'")
    else:
        conn.execute("commit")
