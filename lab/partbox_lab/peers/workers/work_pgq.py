"""A consumer of PgQ, one queue a process; the first one also ticks, as the daemon pgqd does."""

import json
import threading
import time

import psycopg
from reporting import RUN, handler, wait_for_go

PAUSE = 0.01  # seconds between ticks, and between looks for a batch
EVENTS = "select ev_id, ev_type, ev_data, ev_extra1 from pgq.get_batch_events(%s)"


def main() -> None:
    handle = handler(lambda row: json.loads(row[2])["number"])
    queue = f"events{RUN['number']}"
    with psycopg.connect(RUN["dsn"], autocommit=True) as conn:
        if RUN["number"] == 0:
            threading.Thread(target=tick, daemon=True).start()
        wait_for_go()
        while True:
            (batch,) = conn.execute("select pgq.next_batch(%s, 'bench')", (queue,)).fetchone() or (None,)
            if batch is None:
                time.sleep(PAUSE)
                continue
            for row in conn.execute(EVENTS, (batch,)):
                handle(row)
            conn.execute("select pgq.finish_batch(%s)", (batch,))


def tick() -> None:
    with psycopg.connect(RUN["dsn"], autocommit=True) as conn:
        while True:
            conn.execute("select pgq.ticker()")
            time.sleep(PAUSE)


if __name__ == "__main__":
    main()
