"""Kills a process now and then, adds one, sends one away."""

import os
import random
import signal
from contextlib import suppress
from itertools import cycle

from partbox.db.inspect.stats import Cluster, Instance
from partbox.demo.audit import DeliveryAudit
from partbox.demo.chronicle import Chronicle
from partbox.supervisor import Supervisor

FIRST = 5.0  # seconds until the first act
PAUSE = 4.0  # and between two; every other one is a kill


class Cast:
    """Acts only while no partition is on the move, so that each act is seen by itself."""

    def __init__(
        self, supervisor: Supervisor, processes: int, chronicle: Chronicle, audit: DeliveryAudit, now: float
    ) -> None:
        self._supervisor = supervisor
        self._wanted = processes
        self._chronicle = chronicle
        self._audit = audit
        self._due = now + FIRST
        self._acts = cycle((self._kill, self._add, self._kill, self._remove))
        self.kills = 0

    def act(self, cluster: Cluster, now: float) -> None:
        """Do the next act, if it is due."""
        if now >= self._due and self._chronicle.calm and len(cluster.instances) == self._wanted:
            self._due = now + PAUSE
            next(self._acts)(cluster)

    def _kill(self, cluster: Cluster) -> None:
        victim = random.choice(cluster.instances)
        self._audit.killed(victim.pid)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.kills += 1
        self._chronicle.killed(victim)

    def _add(self, _: Cluster) -> None:
        self._wanted += 1
        self._supervisor.scale(self._wanted)
        self._chronicle.say("one more process is asked for")

    def _remove(self, cluster: Cluster) -> None:
        youngest = self._youngest(cluster)
        self._wanted -= 1
        self._supervisor.scale(self._wanted)
        self._chronicle.sent_away(youngest)

    def _youngest(self, cluster: Cluster) -> Instance:
        """The process that the supervisor stops first."""
        started = {child.pid: child.started_at for child in self._supervisor.children}
        return max(cluster.instances, key=lambda each: started.get(each.pid, 0.0))
