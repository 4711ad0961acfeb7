"""The end of nodes under `--until-empty`: when nothing is left to do or to wait for, and a report of the rest."""

import logging
import time
from collections.abc import Sequence

from partbox.observe.logs.database import log_for_database
from partbox.observe.logs.log_event import log_event
from partbox.protocol.outstanding import IDLE_PATIENCE, Standstill
from partbox.supervisor.supervisor import Supervisor
from partbox.text.wording import format_age, format_command

log = logging.getLogger("partbox.supervisor")

# Checks in a row that must find nothing left.
CHECKS_IN_A_ROW = 2
PATIENCE_LEASES = 2  # leases without progress; the partitions of a dead process stand still for one


class UntilEmpty:
    """A detector of the moment when a group of nodes has delivered everything that can be delivered.

    A run with `--until-empty` ends at this moment."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._nodes = [(each, Standstill()) for each in supervisors]
        self._checks = 0

    def is_over(self) -> bool:
        """Return True if no node has unfinished work, at two checks in a row."""
        self._checks = self._checks + 1 if all(self._has_nothing_left(*node) for node in self._nodes) else 0
        return self._checks >= CHECKS_IN_A_ROW

    def log_left_over(self) -> bool:
        """Log the undelivered events that are left in each database. Return True if none are left."""
        left = [each for each, _ in self._nodes if not _is_done(each)]
        if not left:
            log_event(log, "all_delivered", "everything that is due is delivered")
        return not left

    @staticmethod
    def _has_nothing_left(node: Supervisor, standstill: Standstill) -> bool:
        # A node whose database cannot be used counts as having nothing left.
        if node.blocker is not None:
            return True
        with log_for_database(node.database):
            work = node.find_outstanding_work() if node.is_joined else None
        patience = max(IDLE_PATIENCE, PATIENCE_LEASES * node.settings.lease)
        return work is not None and standstill.is_over(work, patience, time.monotonic())


def _is_done(node: Supervisor) -> bool:
    with log_for_database(node.database):
        blocker = node.blocker
        if blocker is not None:
            text = "all due events of the other databases are delivered, but none of this one: %s"
            log_event(log, "not_delivered", text, blocker, subscription=node.subscription)
            return False
        work = node.find_outstanding_work()
        if work is None or work.is_done:
            return work is not None
        text = "this node ends with undelivered events in subscription %r: %s; %s"
        log_event(log, "left_over", text, node.subscription, _describe_left_over(node),
                  _describe_remedy(node, paused=work.is_paused), subscription=node.subscription)  # fmt: skip
        return False


def _describe_left_over(node: Supervisor) -> str:
    kinds = node.list_unfinished_events() or ()
    texts = (f"{each.events:,} {each.what}{_format_due_time(each.due_in)}" for each in kinds)
    return ", ".join(texts) or "none by now"


def _format_due_time(seconds: float | None) -> str:
    return f" (the first is due in {format_age(seconds)})" if seconds else ""


def _describe_remedy(node: Supervisor, *, paused: bool) -> str:
    schema = node.settings.schema_name
    if paused:
        return (
            f"the subscription is paused: {format_command('subscription resume', schema, None, node.subscription)}, "
            "and run this again"
        )
    blocked, doctor = format_command("blocked list", schema, node.subscription), format_command("doctor", schema)
    return f"{blocked} names the events that others wait for, {doctor} says what blocks delivery; then run this again"
