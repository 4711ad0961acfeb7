"""The end of nodes under `--until-empty`: when there is nothing more to do, or to wait for, and what is left then."""

import logging
import time
from collections.abc import Sequence

from partbox.observe.logs.database import about
from partbox.observe.logs.log_event import log_event
from partbox.protocol.outstanding import PATIENCE, Standstill
from partbox.supervisor.supervisor import Supervisor
from partbox.text.wording import age, command

log = logging.getLogger("partbox.supervisor")

LOOKS = 2  # in a row that must say so
LEASES = 2  # the partitions of a process that died stand still for one


class UntilEmpty:
    """Decides when these nodes have done what can be done."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._nodes = [(each, Standstill()) for each in supervisors]
        self._looks = 0

    def is_over(self) -> bool:
        """Return True if no node has work that goes on, for the second time in a row."""
        self._looks = self._looks + 1 if all(self._ends(*node) for node in self._nodes) else 0
        return self._looks >= LOOKS

    def tell(self) -> bool:
        """Log what is left in each database; True if nothing is."""
        left = [each for each, _ in self._nodes if not _is_done(each)]
        if not left:
            log_event(log, "all_delivered", "everything that is due is delivered")
        return not left

    @staticmethod
    def _ends(node: Supervisor, standstill: Standstill) -> bool:
        """True if the node has nothing to wait for; so has one whose database cannot be worked for."""
        if node.hindrance is not None:
            return True
        with about(node.database):
            work = node.outstanding() if node.joined else None
        patience = max(PATIENCE, LEASES * node.settings.lease)
        return work is not None and standstill.is_over(work, patience, time.monotonic())


def _is_done(node: Supervisor) -> bool:
    """True if the node has delivered everything; else what is left is logged."""
    with about(node.database):
        hindrance = node.hindrance
        if hindrance is not None:
            text = "what is due in the other databases is delivered, and nothing of this one: %s"
            log_event(log, "not_delivered", text, hindrance, subscription=node.subscription)
            return False
        work = node.outstanding()
        if work is None or work.is_done:
            return work is not None
        text = "this node ends, and in subscription %r is left: %s; %s"
        log_event(log, "left_over", text, node.subscription, _left(node), _remedy(node, paused=work.paused),
                  subscription=node.subscription)  # fmt: skip
        return False


def _left(node: Supervisor) -> str:
    """The numbers of unfinished events, by their kind."""
    kinds = node.left_over() or ()
    told = (f"{each.events:,} {each.what}{_due(each.due_in)}" for each in kinds)
    return ", ".join(told) or "nothing by now"


def _due(seconds: float | None) -> str:
    return f" (the first is due in {age(seconds)})" if seconds else ""


def _remedy(node: Supervisor, *, paused: bool) -> str:
    schema = node.settings.schema_name
    if paused:
        return f"it is paused: {command('subscription resume', schema, None, node.subscription)}, and run this again"
    blocked, doctor = command("blocked list", schema, node.subscription), command("doctor", schema)
    return f"{blocked} names the events that others wait for, {doctor} what hinders them; then run this again"
