"""Faults of PostgreSQL's backends: sessions end, or their processes stop for a while."""

import signal
import threading

import psycopg

from partbox_lab import processes
from partbox_lab.chaos import statements
from partbox_lab.chaos.fleet import ROLE
from partbox_lab.chaos.schedule import ScheduledFault
from partbox_lab.workspace import Workspace


class Backends:
    """Sessions that end or stop. Each fault returns a text for the log, or None if it could not be done."""

    def __init__(self, place: Workspace) -> None:
        self._place = place
        # Stopped backends, and the timers that resume them.
        self._stopped: dict[int, threading.Timer] = {}

    def cut(self, step: ScheduledFault, role: str) -> str | None:
        """Terminate some sessions of a role. Return None if there is none, or the server does not answer."""
        try:
            with self._place.connect("chaos") as conn:
                found = statements.sessions(conn, self._place.schema, self._place.named(role))
                first = int(step.who * len(found))
                victims = found[first : first + 1 + int(step.how * len(found))]
                for pid in victims:
                    statements.cut(conn, self._place.schema, pid)
        except psycopg.OperationalError:
            return None
        return f"{len(victims)} of {len(found)} sessions" if victims else None

    def stop(self, step: ScheduledFault) -> str | None:
        """Stop a backend of a node and resume it after the fault's time."""
        try:
            with self._place.connect("chaos") as conn:
                found = statements.sessions(conn, self._place.schema, self._place.named(ROLE))
        except psycopg.OperationalError:
            return None
        victims = [pid for pid in found if pid not in self._stopped]
        if not victims:
            return None
        pid = victims[int(step.how * len(victims))]
        # A timer resumes it, since its locks may block everything, this thread included.
        self._stopped[pid] = threading.Timer(step.lasts, _resume, (pid,))
        self._stopped[pid].start()
        processes.signal_all([pid], signal.SIGSTOP)
        return f"backend {pid}, for {step.lasts:.1f} s"

    def go_on(self) -> None:
        """Resume all stopped backends now. A stopped one would delay the end of the server."""
        for pid, timer in self._stopped.items():
            timer.cancel()
            timer.join()
            _resume(pid)
        self._stopped.clear()


def _resume(pid: int) -> None:
    processes.signal_all([pid], signal.SIGCONT)
