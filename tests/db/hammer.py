"""Everybody at once, each in a thread and a connection of its own: for some seconds, and until each has done enough."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom

from ownership import Conn, worker
from psycopg import sql

PATIENCE = 120.0
"""Seconds after which it is an error that somebody has not done enough: nobody may starve for so long."""

Role = Callable[[Conn, Random], object]
"""Done again and again; truthy if it changed something."""


def hammer(dsn: str, conn: Conn, roles: Sequence[Role], *, seconds: float, least: int) -> None:
    """Let `roles` act, each until all have changed something `least` times and the time is over.

    The first error of one ends all, and is raised with the seed in its notes. `conn` makes the server look for
    deadlocks after 20 ms of waiting, on every connection that is new.
    """
    conn.execute(sql.SQL("alter database {} set deadlock_timeout = '20ms'").format(sql.Identifier(conn.info.dbname)))
    seed = SystemRandom().randrange(1 << 32)
    changed: Counter[str] = Counter()
    failed = threading.Event()
    end = time.monotonic() + seconds

    def enough() -> bool:
        return all(changed[role.__name__] >= least for role in roles)

    def act(role: Role, random: Random) -> None:
        try:
            with worker(dsn) as own:
                while not failed.is_set() and (time.monotonic() < end or not enough()):
                    changed[role.__name__] += bool(role(own, random))
                    assert time.monotonic() < end + PATIENCE, f"not enough was done: {changed}"
        except BaseException as error:
            failed.set()
            error.add_note(f"seed {seed}")
            raise

    with ThreadPoolExecutor(len(roles)) as pool:
        acting = [pool.submit(act, role, Random(seed + number)) for number, role in enumerate(roles)]
    for each in acting:
        each.result()
