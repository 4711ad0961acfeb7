"""A backend that a test stops holds nothing: the others of its server go on."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from run_size import examples
from stopped_backend import stop_at_rest

DRAW_AND_READ = "select nextval('partbox.record_id_seq'), pg_sequence_last_value('partbox.record_id_seq')"


@pytest.fixture
def busy(dsn: str) -> Iterator[int]:
    """The pid of a backend that takes the lock on the sequence's page again and again."""
    done = threading.Event()
    with psycopg.connect(dsn, autocommit=True) as conn:

        def hammer() -> None:
            while not done.is_set():
                conn.execute(DRAW_AND_READ)

        hammering = threading.Thread(target=hammer)
        hammering.start()
        try:
            yield conn.info.backend_pid
        finally:
            done.set()
            hammering.join()


def test_a_backend_stopped_while_idle_holds_up_no_other_backend(busy: int, conn: psycopg.Connection[Any]) -> None:
    for _ in range(examples(800)):
        stop_at_rest(busy)
        try:
            conn.execute(DRAW_AND_READ)  # would wait for as long as the other stands still
        finally:
            os.kill(busy, signal.SIGCONT)
