"""The planner of a subscription's owners, which also logs when the subscription is paused or resumed."""

import logging
import time
from functools import partial

from partbox.db.delivery import instances
from partbox.db.delivery.instances import MembershipView
from partbox.db.operator import subscriptions
from partbox.db.sql import Conn
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.protocol.assignment import assign_partitions, needs_plan
from partbox.protocol.intervals import compute_turn_chance
from partbox.text.wording import format_count

log = logging.getLogger("partbox.supervisor")

# Seconds after which a plan without changes is checked again, by some node if there are many.
RECHECK_SECONDS = 30.0


class Planner:
    """A planner that decides which worker process owns which partition of a subscription.

    Each node has a planner. It plans only if an assignee is gone or shares differ by more than one."""

    def __init__(self, schema: str, subscription: str, observers: Observers) -> None:
        self._schema = schema
        self._subscription = subscription
        self._log = partial(log_event, log, subscription=subscription)
        self._observers = observers
        # True while the subscription is paused or dropped, which is logged once.
        self._is_idle = False
        self.plan_count = 0  # plans made here
        # The membership version for which no plan is needed.
        self._checked_shape: tuple[int, int] | None = None
        self._recheck_at = 0.0

    def plan_if_changed(self, conn: Conn, watch: MembershipView) -> None:
        """Reassign partitions if processes have come or gone since the last check, or if a periodic check is due."""
        # A check that made a new plan does not count: the next call checks again.
        if (
            watch.has_unassigned
            or watch.membership_version != self._checked_shape
            or time.monotonic() >= self._recheck_at
        ):
            self._checked_shape = watch.membership_version if self.plan(conn) else None
            self._recheck_at = time.monotonic() + RECHECK_SECONDS / compute_turn_chance(watch.nodes)

    def invalidate(self) -> None:
        """Make the next call of `plan_if_changed` check whether partitions must be reassigned, even if no process has
        changed."""
        self._checked_shape = None

    def plan(self, conn: Conn) -> bool:
        """Assign partitions evenly to the living processes if needed. Return True if no plan was needed."""
        # Nothing is done if another node plans meanwhile.
        found = instances.list_members(conn, self._schema, self._subscription)
        members = [each.instance_id for each in found if not each.is_draining]
        current = instances.list_assignees(conn, self._schema, self._subscription)
        self._log_pause(conn, is_idle=not current)
        if not current or not needs_plan(current, members):
            return bool(current)
        planned = assign_partitions(current, members)
        moved = sum(before != after for before, after in zip(current, planned, strict=True))
        if instances.assign_partitions(conn, self._schema, self._subscription, members, current, planned):
            self.plan_count += 1
            self._observers.planned(moved)
            self._log("planned", "%s", describe_plan(moved, len(members)), partitions=moved, instances=len(members))
        return False

    def _log_pause(self, conn: Conn, *, is_idle: bool) -> None:
        if is_idle == self._is_idle:
            return
        paused = is_idle and subscriptions.is_paused(conn, self._schema, self._subscription)
        if paused is None:
            text = "subscription %r no longer exists: stop this worker"
            self._log("subscription_gone", text, self._subscription)
        elif paused:
            text = "subscription %r is paused: nothing is delivered until `partbox subscription resume`"
            self._log("paused", text, self._subscription)
        elif not is_idle:
            self._log("resumed", "subscription %r is delivered again", self._subscription)
        self._is_idle = paused is not False


def describe_plan(moved: int, members: int) -> str:
    """Return a log message about `moved` partitions that were reassigned among `members` processes, with the reason."""
    what = format_count(moved, "partition")
    if members == 0:
        return f"no process is left to deliver events: {what} wait for a process"
    if members == 1:
        return f"assigned {what} to the only process"
    return f"moving {what}, so that {format_count(members, 'process')} have even shares"
