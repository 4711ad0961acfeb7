"""The news of the demo, reported by their cause or found by comparing two overviews of the cluster."""

import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

from partbox.db.inspect.stats import Cluster, Instance
from partbox.operations.stats import NewsFeed, NewsItem, compare_clusters
from partbox.terminal.roster import Roster
from partbox.text.wording import format_count

FRESH = 1.5  # seconds for which a partition counts as just moved


class ActivityFeed(NewsFeed):
    """A feed of the demo's news, such as processes that join and partitions that change their owner.

    - The feed counts the joins and the moves.
    - `notify` gets each item."""

    def __init__(self, roster: Roster, notify: Callable[[NewsItem], None]) -> None:
        super().__init__()
        self._roster = roster
        self._notify = notify
        self._last_cluster: Cluster | None = None
        self._observed_at = 0.0
        self._joined_ids: set[UUID] = set()
        # Processes whose departure has been reported.
        self._reported_departures: set[UUID] = set()
        # The time since when partitions have been moving.
        self._moving_since: float | None = None
        self._moved_at: dict[int, float] = {}
        self.joins = self.moves = 0

    def report_news(self, text: str) -> None:
        self._notify(self.add_item(text))

    def reset_counts(self, text: str) -> None:
        self.joins = self.moves = 0
        self.report_news(text)

    def report_departure(self, process: Instance, how: str, at: float | None = None) -> None:
        """Report in the news that a process departs and that its partitions go to others."""
        # The item is the text `how`, with the name of the process in the place of the braces.
        # The process's partitions move from the time `at` on, by default from now on.
        self._reported_departures.add(process.instance_id)
        if process.partitions:
            self._moving_since = self._moving_since or at or time.monotonic()
        self.report_news(
            f"{how.format(self._format_process(process))}: its "
            f"{format_count(process.partitions, 'partition')} move to other processes"
        )

    @property
    def is_settled(self) -> bool:
        """True if no partition is moving, and every process has received its first share of partitions."""
        last = self._last_cluster
        if self._moving_since is not None or last is None or not _is_settled(last):
            return False
        return self._joined_ids.issuperset(each.instance_id for each in last.instances)

    def list_moved(self, now: float) -> frozenset[int]:
        """Return the partitions that have changed their owner in the last moments before `now`, for highlighting."""
        return frozenset(partition for partition, at in self._moved_at.items() if now - at < FRESH)

    def observe_cluster(self, cluster: Cluster, at: float) -> None:
        """Compare the state of the cluster with the state before, and report the differences as news."""
        # `at` is the monotonic time of this overview.
        self._roster.add_processes(each.instance_id for each in cluster.instances)
        self._report_joined(cluster, at)
        if self._last_cluster is not None:
            self._report_differences(self._last_cluster, cluster, at)
        self._last_cluster, self._observed_at = cluster, at

    def _report_joined(self, cluster: Cluster, at: float) -> None:
        assigned = Counter(each.assignee for each in cluster.partitions)
        for process in cluster.instances:
            share = assigned[process.instance_id]
            if share and process.instance_id not in self._joined_ids:
                self._joined_ids.add(process.instance_id)
                self.joins += 1
                self._moving_since = self._moving_since or at - process.age
                self.report_news(
                    f"{self._format_process(process)} joined: {format_count(share, 'partition')} move to it"
                )

    def _report_differences(self, before: Cluster, after: Cluster, at: float) -> None:
        found = compare_clusters(before, after)
        for process, _ in found.gone:
            if process.instance_id not in self._reported_departures:
                self.report_departure(process, "{} disappeared unexpectedly", self._observed_at)
        self.moves += len(found.owner_changes)
        self._moved_at.update(dict.fromkeys(found.owner_changes, at))
        claimed = at - min((each.claimed_age for each in after.partitions if each.claimed_age is not None), default=0.0)
        if self._moving_since is not None and claimed > self._moving_since and _is_settled(after):
            self.report_news(f"rebalanced in {claimed - self._moving_since:.1f} s")
            self._moving_since = None

    def _format_process(self, process: Instance) -> str:
        return f"process {self._roster.find_badge(process.instance_id).letter} (pid {process.pid})"


def _is_settled(cluster: Cluster) -> bool:
    # Every partition must be owned by the process that the plan names, and no process may be leaving.
    planned = all(each.owner == each.assignee for each in cluster.partitions)
    return planned and not cluster.unowned and not any(each.draining for each in cluster.instances)
