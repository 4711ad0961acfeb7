"""The news of the demo: told by whoever caused it, or found by comparing two looks at the cluster."""

import time
from collections import Counter, deque
from collections.abc import Callable
from uuid import UUID

from partbox.db.inspect.stats import Cluster, Instance
from partbox.stats.happenings import Happening, News, changes, partitions
from partbox.terminal.roster import Roster


class Chronicle:
    """Counts `joins`, `leaves` and `moves` (partitions that changed owner); `tell` gets every happening."""

    def __init__(self, roster: Roster, tell: Callable[[Happening], None]) -> None:
        self._roster = roster
        self._tell = tell
        self._news = News()
        self._last: Cluster | None = None
        self._looked_at = 0.0
        self._met: set[UUID] = set()
        self._expected: set[UUID] = set()  # to go
        self._began: float | None = None
        self._moved_at: dict[int, float] = {}
        self.joins = self.leaves = self.moves = 0

    @property
    def happenings(self) -> deque[Happening]:
        return self._news.happenings

    def say(self, text: str) -> None:
        """Report something that happened just now."""
        self._tell(self._news.add(text))

    def begin(self, text: str) -> None:
        """Report it, and count from here."""
        self.joins = self.leaves = self.moves = 0
        self.say(text)

    def name(self, process: Instance) -> str:
        return f"process {self._roster.face(process.instance_id).letter} (pid {process.pid})"

    def killed(self, process: Instance) -> None:
        """Report that it was killed just now."""
        self._expect(process, time.monotonic())
        self.say(f"killed {self.name(process)}: its {partitions(process.partitions)} go to others")

    def sent_away(self, process: Instance) -> None:
        """Report that it was asked to leave just now."""
        self.leaves += 1
        self._expect(process, time.monotonic())
        self.say(f"{self.name(process)} leaves: its {partitions(process.partitions)} go to others")

    @property
    def calm(self) -> bool:
        """True if no partition is on the move, and every process has got its first share."""
        last = self._last
        if self._began is not None or last is None or not _settled(last):
            return False
        return all(each.instance_id in self._met for each in last.instances)

    def moved(self, now: float, seconds: float) -> frozenset[int]:
        """The partitions that changed owner in these last seconds."""
        return frozenset(partition for partition, at in self._moved_at.items() if now - at < seconds)

    def watch(self, cluster: Cluster, at: float) -> None:
        """Compare with the last look, and report what is new; `at` is the monotonic time of this one."""
        self._roster.meet(each.instance_id for each in cluster.instances)
        self._newcomers(cluster, at)
        if self._last is not None:
            self._compare(self._last, cluster, at)
        self._last, self._looked_at = cluster, at

    def _newcomers(self, cluster: Cluster, at: float) -> None:
        """Report the processes that have just got their first share."""
        assigned = Counter(each.assignee for each in cluster.partitions)
        for process in cluster.instances:
            share = assigned[process.instance_id]
            if share and process.instance_id not in self._met:
                self._met.add(process.instance_id)
                self.joins += 1
                self._disturb(at - process.age)
                self.say(f"{self.name(process)} joined: {partitions(share)} move to it")

    def _compare(self, before: Cluster, after: Cluster, at: float) -> None:
        found = changes(before, after)
        for process, left in found.gone:
            if process.instance_id not in self._expected:
                self._expect(process, self._looked_at)
                self.say(f"{self.name(process)} is gone, nobody asked it to: its {partitions(left)} go to others")
        self.moves += len(found.claims)
        self._moved_at.update(dict.fromkeys(found.claims, at))
        claimed = at - min((each.claimed_age for each in after.partitions if each.claimed_age is not None), default=0.0)
        if self._began is not None and claimed > self._began and _settled(after):
            self.say(f"rebalanced in {claimed - self._began:.1f} s")
            self._began = None

    def _expect(self, process: Instance, at: float) -> None:
        self._expected.add(process.instance_id)
        if process.partitions:
            self._disturb(at)

    def _disturb(self, at: float) -> None:
        """Partitions move from now on, if none did before."""
        if self._began is None:
            self._began = at


def _settled(cluster: Cluster) -> bool:
    """True if every partition is owned as planned, and no process is leaving."""
    planned = all(each.owner == each.assignee for each in cluster.partitions)
    return planned and not cluster.unowned and not any(each.draining for each in cluster.instances)
