"""Kills a process now and then, adds one, sends one away."""

import os
import random
import signal
from contextlib import suppress
from itertools import cycle

from partbox.demo.chronicle import Chronicle
from partbox.demo.cluster import Process, Sight
from partbox.demo.ledger import Ledger
from partbox.supervisor import Supervisor

FIRST = 5.0  # seconds until the first act
PAUSE = 4.0  # and between two; every other one is a kill


class Cast:
    """Acts only while nothing is on the move, so that each act is seen by itself."""

    def __init__(
        self, supervisor: Supervisor, processes: int, chronicle: Chronicle, ledger: Ledger, now: float
    ) -> None:
        self._supervisor = supervisor
        self._wanted = processes
        self._chronicle = chronicle
        self._ledger = ledger
        self._due = now + FIRST
        self._acts = cycle((self._kill, self._add, self._kill, self._remove))
        self.kills = 0

    def act(self, sight: Sight) -> None:
        """Do what is due, if it is."""
        if sight.at >= self._due and self._chronicle.calm and len(sight.processes) == self._wanted:
            self._due = sight.at + PAUSE
            next(self._acts)(sight)

    def _kill(self, sight: Sight) -> None:
        victim = random.choice(sight.processes)
        self._ledger.killed(victim.pid)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.kills += 1
        self._chronicle.killed(victim)

    def _add(self, sight: Sight) -> None:
        self._wanted += 1
        self._supervisor.scale(self._wanted)
        self._chronicle.say("one more process is asked for")

    def _remove(self, sight: Sight) -> None:
        youngest = self._youngest(sight)
        self._wanted -= 1
        self._supervisor.scale(self._wanted)
        self._chronicle.sent_away(youngest)

    def _youngest(self, sight: Sight) -> Process:
        """Whom the supervisor lets go first."""
        started = {child.pid: child.started_at for child in self._supervisor.children}
        return max(sight.processes, key=lambda process: started.get(process.pid, 0.0))
