"""Tampers with the bell, again and again until the fault is over: a thread with a session of its own."""

import threading
from typing import Final

import psycopg

from partbox_lab.chaos import statements
from partbox_lab.workspace import Workspace

BEAT: Final = 0.005  # seconds


class Tamperer(threading.Thread):
    """Does one of the faults of the bell until `end`; a session that is lost is made anew."""

    def __init__(self, place: Workspace, fault: str) -> None:
        super().__init__(name=f"chaos-{fault}", daemon=True)
        self._place = place
        self._tamper = statements.TAMPERS[fault]
        self._ended = threading.Event()

    def end(self) -> None:
        """End the fault, and wait for that."""
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
