"""Derive the status of an event in a subscription from the rows that describe it."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

UNHANDLED: Final = "no handler took it"
ENDED_STATES: Final = ("dead", "discarded", "cancelled")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A step in the processing of an event by a subscription, such as a failed attempt or a replay."""

    # `outcome` is failed, dead, ignored, interrupted (the process died), done (after the record was parked), repeated
    # (done, and a process that died may have run the record before), skipped, replayed or discarded (by an operator),
    # or cancelled. A delivery at the first attempt leaves no entry. `process` is "pid on node", or None for an
    # operator, who is named by `who`. `seconds` is the running time of the handler, or None if unknown.

    at: datetime
    outcome: str
    attempt: int
    process: str | None = None
    seconds: float | None = None
    error: str | None = None
    who: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The completed delivery of a record to a subscription, which happened between the times `after` and `before`."""

    # `outcome` is delivered, repeated (a process that died may have run the record too), or ignored (`on_error` said
    # that the error does not matter, or no handler took the record). `process` is "pid on node". The times and the
    # process are None if they are no longer known.

    outcome: str
    after: datetime | None
    before: datetime | None
    process: str | None


@dataclass(frozen=True, slots=True)
class ParkedState:
    """The state of an event that could not be finished at once: attempts, due time and last error."""

    state: str
    attempts: int
    due_at: datetime | None
    parked_at: datetime
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """The facts, read from the database at one moment, that decide the status of an event in a subscription."""

    # `wanted` is False if the type filter of the subscription excludes the record. `consumed` is True if the saved
    # cursor of its partition has passed the record. `owner` is the process that owns the partition. `ahead` is the
    # number of records that have to be read first, and None for a consumed record. `head` is the record for which the
    # aggregate waits. `history` starts with the oldest entry.

    subscription: str
    partition: int
    paused: bool = False
    wanted: bool = True
    consumed: bool = False
    owner: str | None = None
    running: bool = False
    ahead: int | None = None
    head: int | None = None
    parked: ParkedState | None = None
    delivery: Delivery | None = None
    history: tuple[HistoryEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """The status of an event in a subscription: its outcome, or where and why it waits."""

    # `state` is one of: waiting (not read yet, or in the memory of a process), running, retrying, deferred, scheduled,
    # held, ready, dead, discarded, cancelled, delivered, ignored (`on_error` said that the error does not matter, or no
    # handler took the record), unwanted (excluded by the type filter of the subscription), or passed (the subscription
    # began after the record, and no delivery is known). `process` is the "pid on node" of the process that has the
    # record or has delivered it. `behind` is the record for which this record waits. `ahead` is the number of records
    # of the partition that have to be read first. `why` is the reason for waiting, in words. `attempts` counts the
    # charged attempts. `since` is the time at which the record was parked or died. `due_at` is the time of the next
    # attempt.

    subscription: str
    state: str
    process: str | None = None
    behind: int | None = None
    ahead: int | None = None
    why: str | None = None
    due_at: datetime | None = None
    attempts: int = 0
    since: datetime | None = None
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)
    delivered: Delivery | None = None
    history: tuple[HistoryEntry, ...] = ()

    @property
    def may_have_run_twice(self) -> bool:
        """True if the handler may have run twice, because a process died that may already have run the handler."""
        # The record ran again after the death of the process.
        return any(entry.outcome == "repeated" for entry in self.history)


def derive_status(facts: DeliveryFacts) -> DeliveryStatus:
    """Derive the status of an event in a subscription, such as waiting, dead or delivered."""
    # A parked row gives the status by itself. Without a parked row, the saved cursor says whether the record was
    # consumed. The view `delivery` then contains the delivery of a consumed record, unless the record did not concern
    # the subscription.
    status = _derive_consumed(facts) if facts.consumed and facts.parked is None else _derive_unfinished(facts)
    if not facts.history:
        return status
    return replace(status, history=facts.history, attempts=status.attempts or facts.history[-1].attempt)


def _derive_consumed(facts: DeliveryFacts) -> DeliveryStatus:
    name, end = facts.subscription, facts.delivery
    if end is None:
        return DeliveryStatus(name, "passed" if facts.wanted else "unwanted")
    if end.outcome != "ignored":
        return DeliveryStatus(name, "delivered", end.process, delivered=end)
    last = facts.history[-1] if facts.history else None
    error = last.error if last is not None and last.outcome == "ignored" else UNHANDLED
    return DeliveryStatus(name, "ignored", end.process, error=error, delivered=end)


def _derive_unfinished(facts: DeliveryFacts) -> DeliveryStatus:
    status, parked = DeliveryStatus(facts.subscription, "waiting"), facts.parked
    if parked is not None:
        status = replace(
            status,
            state=parked.state,
            attempts=parked.attempts,
            since=parked.parked_at,
            error=parked.error,
            traceback=parked.traceback,
        )
        if parked.state in ENDED_STATES:
            return status
    if facts.running:
        return replace(status, state="running", process=facts.owner)
    due_at, why = None if parked is None else parked.due_at, _find_blocker(facts)
    return replace(status, process=facts.owner, behind=facts.head, ahead=facts.ahead, why=why, due_at=due_at)


def _find_blocker(facts: DeliveryFacts) -> str | None:
    if facts.paused:
        return "the subscription is paused"
    return None if facts.owner is not None else f"no process owns partition {facts.partition}"
