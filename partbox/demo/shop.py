"""A small shop whose orders are placed, paid and shipped. Each step publishes an event in its transaction."""

import random
import threading
import time

import psycopg

from partbox.db.sql import Conn, load_query
from partbox.demo.audit import STEPS
from partbox.outbox import Outbox

CLERKS = 3
OPEN_ORDERS = 200  # orders on their way at any time
# Share of steps whose transactions are rolled back after the event was published.
DECLINED = 0.02
# Seconds of work that a delayed clerk catches up with.
MAX_BACKLOG = 0.5


class Shop:
    """The demo's publisher: a shop whose clerks publish events about the same orders at the same time.

    - `rate`: in events per second
    - `published`: counts committed events
    - `rolled_back`: counts events that no handler may get"""

    def __init__(self, outbox: Outbox, rate: float) -> None:
        self._outbox = outbox
        self._schema = outbox.settings.schema_name
        self._pause = CLERKS / rate
        self._open: list[int] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._clerks = [threading.Thread(target=self._run_clerk, name=f"clerk-{n}", daemon=True) for n in range(CLERKS)]
        self.published = self.rolled_back = 0
        self.failure: Exception | None = None

    def open_shop(self) -> None:
        with psycopg.connect(self._outbox.dsn, autocommit=True) as conn:
            conn.execute(load_query("demo_shop", self._schema), {})
        for clerk in self._clerks:
            clerk.start()

    def close_shop(self) -> None:
        """Stop publishing, and wait until every clerk has ended its transaction."""
        # This is allowed if the shop is not open.
        self._closing.set()
        for clerk in self._clerks:
            if clerk.ident is not None:
                clerk.join()

    def list_orders(self) -> list[tuple[int, int]]:
        """Return the last step of each order from the shop's own table, as `(order, step)`."""
        with psycopg.connect(self._outbox.dsn, autocommit=True) as conn:
            return conn.execute(load_query("demo_orders", self._schema), {}).fetchall()

    def _run_clerk(self) -> None:
        try:
            with psycopg.connect(self._outbox.dsn, autocommit=True) as conn:
                due = time.monotonic()
                while not self._closing.wait(max(0.0, due - time.monotonic())):
                    self._advance_order(conn)
                    due = max(due + self._pause, time.monotonic() - MAX_BACKLOG)
        except Exception as error:
            self.failure = error
            self._closing.set()

    def _advance_order(self, conn: Conn) -> None:
        # The event of the step is published in the same transaction. An order's row lock serialises competing clerks.
        with self._lock:
            order_id = random.choice(self._open) if len(self._open) >= OPEN_ORDERS else None
        declined = order_id is not None and random.random() < DECLINED
        with conn.transaction():
            if order_id is None:
                moved = conn.execute(
                    load_query("demo_place", self._schema), {"total": random.randrange(5, 500)}
                ).fetchone()
            else:
                moved = conn.execute(load_query("demo_advance", self._schema), {"id": order_id}).fetchone()
            # Another clerk shipped the order first.
            if moved is None:
                return
            order, step = moved
            payload = {"order": order, "declined": declined, "sent": time.monotonic_ns()}
            self._outbox.publish(conn, STEPS[step - 1], payload, aggregate_type="Order", aggregate_id=str(order))
            if declined:
                raise psycopg.Rollback
        with self._lock:
            self.rolled_back += declined
            self.published += not declined
            # The first step is never declined.
            if step == 1:
                self._open.append(order)
            elif step == len(STEPS) and not declined:
                self._open.remove(order)
