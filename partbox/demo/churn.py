"""Kills a process now and then, adds one, sends one away."""

import os
import random
import signal
from contextlib import suppress
from itertools import cycle

from partbox.db.inspect.stats import Cluster
from partbox.demo.activity_feed import ActivityFeed
from partbox.demo.audit import DeliveryAudit
from partbox.supervisor import Supervisor

FIRST = 5.0  # seconds until the first act
PAUSE = 4.0  # and between two; every other one is a kill


class Churn:
    """Acts only while no partition is on the move, so that each act is seen by itself."""

    def __init__(self, supervisor: Supervisor, processes: int, feed: ActivityFeed, audit: DeliveryAudit) -> None:
        self._supervisor = supervisor
        self._wanted = processes
        self._feed = feed
        self._audit = audit
        self._due = FIRST
        self._acts = cycle((self._kill, self._add, self._kill, self._remove))
        self.kills = self.leaves = 0

    def act(self, cluster: Cluster, elapsed: float) -> None:
        """Do the next act, if it is due."""
        if elapsed >= self._due and self._feed.calm and len(cluster.instances) == self._wanted:
            self._due = elapsed + PAUSE
            next(self._acts)(cluster)

    def _kill(self, cluster: Cluster) -> None:
        victim = random.choice(cluster.instances)
        self._audit.killed(victim.pid)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.kills += 1
        self._feed.departs(victim, "killed {}")

    def _add(self, _: Cluster) -> None:
        self._scale(1)
        self._feed.say("one more process is asked for")

    def _remove(self, cluster: Cluster) -> None:
        started = {child.pid: child.started_at for child in self._supervisor.children}
        self._scale(-1)  # the youngest leaves
        self.leaves += 1
        self._feed.departs(max(cluster.instances, key=lambda each: started.get(each.pid, 0.0)), "{} leaves")

    def _scale(self, more: int) -> None:
        self._wanted += more
        self._supervisor.scale(self._wanted)
