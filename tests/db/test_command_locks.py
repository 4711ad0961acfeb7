"""Commands on parked rows beside saves, all at once, on the same partitions: no deadlock, nothing half done."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom

import pytest
from effort import examples
from ownership import Conn, worker
from psycopg import sql

from partbox.db import blocked, dead

SECONDS = examples(40) / 10
PARTITIONS = 40
ROWS = 10
HERE = ("partbox", "default")

PLANT = """
insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks)
select 'default', i, i %% %(partitions)s, 'Order', i %% %(partitions)s, 'Placed', 'dead', false
  from generate_series(1, %(partitions)s * %(rows)s) as i
"""
SAVE = """
with mine as materialized (
    select p.partition from partbox.partition p where p.subscription = 'default' and p.partition = any (%(partitions)s)
     order by p.partition for no key update
)
update partbox.parked k set state = 'retrying', blocks = true, due_at = clock_timestamp() + interval '1 h'
  from mine where k.partition = mine.partition and k.record_id = any (%(ids)s)
"""


def ids(random: Random) -> list[int]:
    return random.sample(range(1, PARTITIONS * ROWS + 1), 60)


def saved(conn: Conn, random: Random) -> object:
    """As a save: some partitions' rows, then parked ones."""
    chosen = random.sample(range(PARTITIONS), 30)
    return conn.execute(SAVE, {"partitions": chosen, "ids": ids(random)}).rowcount


def replayed(conn: Conn, random: Random) -> object:
    return dead.replay(conn, *HERE, ids(random))


def discarded(conn: Conn, random: Random) -> object:
    """Nothing is consumed here, so it locks and looks, and leaves everything."""
    return dead.discard(conn, *HERE, ids(random)).unread


def retried(conn: Conn, random: Random) -> object:
    head = blocked.retry_now(conn, *HERE, "Order", str(random.randrange(PARTITIONS)))
    return head and head.changed


def skipped(conn: Conn, random: Random) -> object:
    key = str(random.randrange(PARTITIONS))
    return blocked.skip(conn, *HERE, "Order", key, reason="why not", error_limit=100)


ROLES: list[Callable[[Conn, Random], object]] = [saved, saved, replayed, replayed, discarded, retried, skipped, skipped]


@pytest.mark.timeout(60)
def test_commands_and_saves_at_once_never_deadlock(dsn, conn):
    seed = SystemRandom().randrange(1 << 32)
    conn.execute(PLANT, {"partitions": PARTITIONS, "rows": ROWS})
    conn.execute(sql.SQL("alter database {} set deadlock_timeout = '20ms'").format(sql.Identifier(conn.info.dbname)))
    done: Counter[str] = Counter()
    failed = threading.Event()
    end = time.monotonic() + SECONDS

    def act(role: Callable[[Conn, Random], object], random: Random) -> None:
        try:
            with worker(dsn) as own:
                while time.monotonic() < end and not failed.is_set():
                    done[role.__name__] += bool(role(own, random))
        except BaseException as error:
            failed.set()
            error.add_note(f"seed {seed}")
            raise

    with ThreadPoolExecutor(len(ROLES)) as pool:
        for acting in [pool.submit(act, role, Random(seed + number)) for number, role in enumerate(ROLES)]:
            acting.result()
    assert min(done[role.__name__] for role in ROLES) >= 10, f"{done}, seed {seed}"
    wrong = "select count(*) from partbox.parked where state = 'dead' and blocks or state = 'ready' and not blocks"
    assert conn.execute(wrong).fetchone() == (0,)
