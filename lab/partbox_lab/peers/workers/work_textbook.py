"""A worker of the textbook outbox: claim a page of unlocked rows, call the handler, delete the rows, commit."""

import orjson  # partbox parses by orjson too
import psycopg
from reporting import RUN, handler, wait_for_go

from partbox_lab.sql import query

LISTEN, CLAIM, DELETE = (
    query(name, "") for name in ("peers_textbook_listen", "peers_textbook_claim", "peers_textbook_delete")
)


def main() -> None:
    handle = handler(lambda row: orjson.loads(row[2])["number"])
    with psycopg.connect(RUN["dsn"], autocommit=True) as conn:
        conn.execute(LISTEN)
        wait_for_go()
        while True:
            with conn.transaction():
                rows = conn.execute(CLAIM).fetchall()
                for row in rows:
                    handle(row)
                if rows:
                    conn.execute(DELETE, {"ids": [row[0] for row in rows]})
            if not rows:
                next(conn.notifies(timeout=1, stop_after=1), None)


if __name__ == "__main__":
    main()
