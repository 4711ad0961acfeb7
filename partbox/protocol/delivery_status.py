"""What became of a record in a subscription, decided from the rows that tell it.

A parked row says it by itself. Without one the saved cursor says whether the record was consumed; then the view
`delivery` has it, unless the subscription had nothing to do with it.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

UNHANDLED: Final = "no handler took it"
ENDED_STATES: Final = ("dead", "discarded", "cancelled")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Something that befell a record in a subscription, but for a delivery at the first go.

    `outcome`: failed, dead, ignored, interrupted (its process died), done (after it was parked), repeated (done, and a
    process that died may have run it before), an operator's skipped, replayed, discarded, or cancelled. `process`: "pid
    on node", None for an operator, who is `who`. `seconds` that the handler ran, None if unknown.
    """

    at: datetime
    outcome: str
    attempt: int
    process: str | None = None
    seconds: float | None = None
    error: str | None = None
    who: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery: not before `after`, and saved by `before`; `process`: "pid on node". None: nobody knows any more.

    `outcome`: delivered, repeated (a process that died may have run it, too), or ignored (it failed, and `on_error`
    said that it does not matter, or its process had no handler for it).
    """

    outcome: str
    after: datetime | None
    before: datetime | None
    process: str | None


@dataclass(frozen=True, slots=True)
class ParkedState:
    """A parked row: its state, counted attempts, when it is due, since when, the last error and its traceback."""

    state: str
    attempts: int
    due_at: datetime | None
    parked_at: datetime
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DeliveryFacts:  # what is read of a record and a subscription
    """Facts about a record in a subscription at one moment.

    `wanted`: by its type filter. `consumed`: by the saved cursor of its partition, which `owner` has. `ahead`: records
    to be read before it, None if it is consumed. `head`: the record that its aggregate waits for. `history`, the oldest
    first.
    """

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
    """A record in a subscription: what became of it, or where it waits.

    `state`: waiting (not read yet, or in the memory of a process), running, retrying, deferred, scheduled, held, ready,
    dead, discarded, cancelled, delivered, ignored (`on_error` said that its error does not matter, or no handler took
    it), unwanted (by the subscription's type filter), or passed (the subscription began after it, and no delivery is
    known).
    `process`: "pid on node", the one that has it, or that has delivered it. `behind`: the record it waits for; `ahead`:
    how many of its partition are to be read before it; `why` it waits, in words. `attempts` that were counted; `since`:
    when it was parked, or died; `due_at`: its next attempt.
    """

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
        """True if a process died that may have run it, and it was run again."""
        return any(entry.outcome == "repeated" for entry in self.history)


def delivery_status(facts: DeliveryFacts) -> DeliveryStatus:
    """The standing of a record in a subscription."""
    status = _consumed(facts) if facts.consumed and facts.parked is None else _unfinished(facts)
    last = facts.history[-1] if facts.history else None
    return replace(status, history=facts.history, attempts=status.attempts or (last.attempt if last else 0))


def _consumed(facts: DeliveryFacts) -> DeliveryStatus:
    """Delivered, unless its subscription had nothing to do with it."""
    name, end = facts.subscription, facts.delivery
    if end is None:
        return DeliveryStatus(name, "passed" if facts.wanted else "unwanted")
    if end.outcome != "ignored":
        return DeliveryStatus(name, "delivered", end.process, delivered=end)
    last = facts.history[-1] if facts.history else None
    error = last.error if last is not None and last.outcome == "ignored" else UNHANDLED
    return DeliveryStatus(name, "ignored", end.process, error=error, delivered=end)


def _unfinished(facts: DeliveryFacts) -> DeliveryStatus:
    """Parked, given up for good, or still to be read."""
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
    """The reason why nothing of its partition goes on, if there is one."""
    if facts.paused:
        return "the subscription is paused"
    return None if facts.owner is not None else f"no process owns partition {facts.partition}"
