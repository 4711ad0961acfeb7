"""Plans the owners of a subscription's partitions, and logs when the subscription is paused or resumed."""

import logging
import time
from functools import partial

from partbox.db.delivery import instances
from partbox.db.delivery.instances import Watch
from partbox.db.operator import subscriptions
from partbox.db.sql import Conn
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.protocol.assignment import assign, needs_plan
from partbox.protocol.intervals import share
from partbox.text.wording import counted

log = logging.getLogger("partbox.supervisor")

LASTS = 30.0  # seconds after which what needs no plan is read again, by some node if there are many


class Planner:
    """Any node may plan: a plan is made only when an assignee is gone or the shares differ by more than one."""

    def __init__(self, schema: str, subscription: str, observers: Observers) -> None:
        self._schema = schema
        self._subscription = subscription
        self._log = partial(log_event, log, subscription=subscription)
        self._observers = observers
        self._still = False  # paused or dropped, which is logged once
        self.made = 0  # plans that were made here
        self._settled: tuple[int, int] | None = None  # the shape for which no plan is needed
        self._settled_until = 0.0

    def attend(self, conn: Conn, watch: Watch) -> None:
        """Plan if something has changed since no plan was needed."""
        if watch.unassigned or watch.shape != self._settled or time.monotonic() >= self._settled_until:
            self._settled = watch.shape if self.plan(conn) else None
            self._settled_until = time.monotonic() + LASTS / share(watch.nodes)

    def forget(self) -> None:
        """Read anew whether a plan is needed."""
        self._settled = None

    def plan(self, conn: Conn) -> bool:
        """Plan if needed; a plan that another node has made meanwhile is left in force. True if none was needed."""
        found = instances.members(conn, self._schema, self._subscription)
        members = [each.instance_id for each in found if not each.draining]
        seen = instances.assignees(conn, self._schema, self._subscription)
        self._say(conn, still=not seen)
        if not seen or not needs_plan(seen, members):
            return bool(seen)
        planned = assign(seen, members)
        moved = sum(before != after for before, after in zip(seen, planned, strict=True))
        if instances.plan(conn, self._schema, self._subscription, members, seen, planned):
            self.made += 1
            self._observers.planned(moved)
            self._log("planned", "%s", of_plan(moved, len(members)), partitions=moved, instances=len(members))
        return False

    def _say(self, conn: Conn, *, still: bool) -> None:
        """Once, when the subscription is paused, and when it is resumed."""
        if still == self._still:
            return
        paused = still and subscriptions.paused(conn, self._schema, self._subscription)
        if paused is None:
            text = "subscription %r no longer exists: stop this worker"
            self._log("subscription_gone", text, self._subscription)
        elif paused:
            text = "subscription %r is paused: nothing is delivered until `partbox subscription resume`"
            self._log("paused", text, self._subscription)
        elif not still:
            self._log("resumed", "subscription %r is delivered again", self._subscription)
        self._still = paused is not False


def of_plan(moved: int, members: int) -> str:
    """The moves of a plan, and their reason."""
    what = counted(moved, "partition")
    if members == 0:
        return f"no process is left that delivers: {what} wait for one"
    if members == 1:
        return f"assigned {what} to the only process"
    return f"moving {what}, so that {counted(members, 'process')} have even shares"
