"""A thread that repeats one statement against the bell or its flag."""

import threading
from typing import Final

import psycopg

from partbox_lab.chaos import statements
from partbox_lab.workspace import Workspace

BEAT: Final = 0.005  # seconds


class Tamperer(threading.Thread):
    """A thread that repeats the statement of a fault until `end`. A lost session is opened again."""

    def __init__(self, place: Workspace, fault: str) -> None:
        super().__init__(name=f"chaos-{fault}", daemon=True)
        self._place = place
        self._tamper = statements.TAMPERS[fault]
        self._ended = threading.Event()

    def end(self) -> None:
        """Stop the thread and wait for it."""
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                with self._place.connect("chaos") as conn:
                    while not self._ended.wait(BEAT):
                        self._tamper(conn, self._place.schema)
            except psycopg.Error:
                continue
