"""A consumer of PgQ, one queue per process. The first process also ticks, as the daemon pgqd does."""

import threading
import time

import orjson  # partbox parses by orjson too
import psycopg
from reporting import RUN, list_handler, wait_for_go

from partbox_lab.sql import query

PAUSE = 0.01  # seconds between ticks, and between polls for a batch
NEXT, EVENTS, FINISH, TICK = (
    query(name, "") for name in ("peers_pgq_next", "peers_pgq_events", "peers_pgq_finish", "peers_pgq_tick")
)


def main() -> None:
    handle = list_handler(lambda row: orjson.loads(row[2])["number"])
    queue = f"events{RUN['number']}"
    with psycopg.connect(RUN["dsn"], autocommit=True) as conn:
        if RUN["number"] == 0:
            threading.Thread(target=tick, daemon=True).start()
        wait_for_go()
        while True:
            (batch,) = conn.execute(NEXT, {"queue": queue}).fetchone() or (None,)
            if batch is None:
                time.sleep(PAUSE)
                continue
            handle(conn.execute(EVENTS, {"batch": batch}).fetchall())
            conn.execute(FINISH, {"batch": batch})


def tick() -> None:
    with psycopg.connect(RUN["dsn"], autocommit=True) as conn:
        while True:
            conn.execute(TICK)
            time.sleep(PAUSE)


if __name__ == "__main__":
    main()
