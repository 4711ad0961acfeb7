"""Faults of backends: sessions end, or stop for a while."""

import signal
import threading

import psycopg

from partbox_lab import processes
from partbox_lab.chaos import statements
from partbox_lab.chaos.fleet import ROLE
from partbox_lab.chaos.schedule import ScheduledFault
from partbox_lab.workspace import Workspace


class Backends:
    """Each fault answers what it has done, None if it could not."""

    def __init__(self, place: Workspace) -> None:
        self._place = place
        self._stopped: dict[int, threading.Timer] = {}  # backends, and the timers that resume them

    def cut(self, step: ScheduledFault, role: str) -> str | None:
        """End some of the sessions of a role."""
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
        """Stop a backend of the nodes. A timer resumes it: its locks may hold up everything, this thread too."""
        try:
            with self._place.connect("chaos") as conn:
                found = statements.sessions(conn, self._place.schema, self._place.named(ROLE))
        except psycopg.OperationalError:
            return None
        victims = [pid for pid in found if pid not in self._stopped]
        if not victims:
            return None
        pid = victims[int(step.how * len(victims))]
        self._stopped[pid] = threading.Timer(step.lasts, _resume, (pid,))
        self._stopped[pid].start()
        processes.signal_all([pid], signal.SIGSTOP)
        return f"backend {pid}, for {step.lasts:.1f} s"

    def go_on(self) -> None:
        """Resume all stopped backends now; one would hold up the server's end."""
        for pid, timer in self._stopped.items():
            timer.cancel()
            timer.join()
            _resume(pid)
        self._stopped.clear()


def _resume(pid: int) -> None:
    processes.signal_all([pid], signal.SIGCONT)
