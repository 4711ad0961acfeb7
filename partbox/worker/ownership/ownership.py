"""Claims, drains and losses of the partitions of one process. A tick reads the database's state in one statement,
`decide_changes` compares it with memory, and each change is one statement, one operation of `engine.claims`, and a
report."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from partbox.db.delivery import cursors, instances, parked, proof
from partbox.db.delivery.cursors import OperatorBounds
from partbox.db.delivery.idle_check import IdleCheck
from partbox.protocol.limit_addresses import LimitAddress
from partbox.protocol.rows import OwnedPartition, TickPartition
from partbox.text.wording import format_count
from partbox.worker.context import Context
from partbox.worker.engine.claims import LostPartitions, ParkedIndex
from partbox.worker.engine.partition import Tenure
from partbox.worker.ownership.decision import decide_changes, find_stale, merge_limits
from partbox.worker.slot import OWNED, PLAN_COUNT, STOPPING

LOAD_TRIES = 3
TAKEOVER = (
    "took over %s (%s) of a process that died: events that it had not saved are delivered again, and those that may "
    "have killed it are charged with an attempt before they run"
)


class Tick(NamedTuple):
    """The result of one periodic check of the partitions in the database."""

    # `due_partitions` lists the partitions with a due parked row, and `next_due_in` is the seconds until the next one.
    # `is_calm` is True if nothing has changed since the last check. The result is empty for a process without an
    # identity.

    idle_check: IdleCheck | None
    due_partitions: list[int]
    next_due_in: float | None
    is_calm: bool
    # True if another process still owns a partition that is assigned to this one.
    awaits_release: bool


class Ownership:
    """The partitions that one worker process owns, and the code that claims and releases them.

    They are owned under the instance id of the process; under another id, all are lost. Only the poller's thread uses
    this class, except for `drop_refused`. `claimed` is called with the saved floor of each partition taken up or
    claimed."""

    def __init__(self, context: Context, claimed: Callable[[int], object]) -> None:
        self._context = context
        self._engine = context.engine
        self._claims = context.engine.claims
        self._on_claimed = claimed
        self._observers = context.observers
        self._slot = context.slot
        self._wakeup = context.wakeup
        self._schema = context.schema
        self._subscription = context.subscription
        # The number of plans when the last tick began.
        self._plan_count = 0.0
        self.instance_id: UUID | None = None
        self._leaving_noted: UUID | None = None
        # The limits that operators have set, as they are in force.
        self._operator_limits: dict[LimitAddress, OperatorBounds] = {}
        # The digest of the partitions at the last tick. Taking up a partition changes its epoch, and so the digest.
        self._digest: int | None = None
        # The idle check of the last tick, if no id was drawn between that tick and the one before.
        self._idle_check: IdleCheck | None = None
        # The idle check of the last tick.
        self._last_check: IdleCheck | None = None

    @property
    def is_outdated(self) -> bool:
        """True if the owned partitions must be read again, because this process has another instance id."""
        # The supervisor has given it another id, or has revoked its id.
        return self._slot.version != self._engine.version

    @property
    def is_replanned(self) -> bool:
        """True if partitions may have been reassigned or changed since the last check."""
        # The supervisor has made a plan since then, or another process announced a change.
        return self._wakeup.has_changes or self._slot[PLAN_COUNT] != self._plan_count

    def resume(self, conn: Connection[Any]) -> None:
        """Read from the database which partitions this process owns, and continue from their saved positions."""
        # Statements of the lost connection may still arrive, so the epochs are raised. An answer may have
        # been lost, so the epochs in memory prove nothing, but no other process can have owned a partition under this
        # identity.
        # This happens on a new connection or under a new identity.
        version, self.instance_id = self._slot.version, self._slot.instance
        # The server may have crashed since, and may draw the same ids again.
        self._idle_check = self._last_check = None
        rows = self._raise_epochs(conn, self.instance_id) if self.instance_id else []
        taken = self._claims.replace_owned(rows, time.monotonic())
        self._report_lost(taken.lost)
        for row in taken.kept:
            self._observers.forgotten(row.partition)
            self._on_claimed(row.floor_id)
        self._report_claimed(taken.new)
        self._load_parked(conn, {row.partition: row.parked_version for row in rows})
        # Set last: if a statement fails, the whole step is tried again.
        self._engine.version = version

    def _raise_epochs(self, conn: Connection[Any], me: UUID) -> list[OwnedPartition]:
        where = (conn, self._schema, self._subscription, me)
        while True:
            seen = cursors.run_tick(*where, ()).partitions or ()
            epochs = {row.partition: row.epoch for row in seen if row.is_owned}
            rows = cursors.take_up_partitions(*where, epochs)
            # A statement sent before may have arrived in between, and raised an epoch.
            if len(rows) == len(epochs):
                return rows

    def tick(self, conn: Connection[Any], listed: Iterable[int] = ()) -> Tick:
        """Check in the database which partitions this process should own, and claim or release them accordingly."""
        # Partitions are claimed, drained and dropped. The same statement looks whether any of the `listed` transactions
        # have ended.
        self._plan_count, self._wakeup.has_changes = self._slot[PLAN_COUNT], False
        if self.instance_id is None:
            return Tick(None, [], None, False, False)
        listed, settled = [*listed], self._settled_digest
        # While the log moves, the cheap statement would show nothing, so it is skipped.
        if not listed and settled is not None and self._idle_check is not None:
            look = cursors.recheck_idle(
                conn, self._schema, self._subscription, self.instance_id, settled, self._idle_check
            )
            if look is not None:
                return Tick(look, [], None, True, False)
        seen = cursors.run_tick(conn, self._schema, self._subscription, self.instance_id, listed, settled)
        before, self._last_check = self._last_check, seen.idle_check
        self._idle_check = (
            seen.idle_check if before is not None and before.fence.drawn_id == seen.idle_check.fence.drawn_id else None
        )
        if seen.partitions is not None:
            # If the changes fail, this tick has settled nothing.
            self._digest = None
            # Set the limits before anything is claimed, so that its first event already waits for a permit.
            if seen.limits != self._operator_limits:
                self._context.limits.override_limits(merge_limits(seen.limits, self._context.limits.declared_limits))
                self._operator_limits = seen.limits
            self._apply_decision(conn, self.instance_id, seen.partitions)
            self._claims.note_tick(seen.partitions, seen.due_times)
            self._digest = seen.digest
        self._slot[OWNED] = float(self._claims.count_partitions())
        due = [partition for partition, seconds in seen.due_times.items() if seconds <= 0]
        later = [seconds for seconds in seen.due_times.values() if seconds > 0]
        awaits_release = any(row.is_assigned and not row.is_owned and not row.is_free for row in seen.partitions or ())
        return Tick(seen.idle_check, due, min(later, default=None), seen.partitions is None, awaits_release)

    @property
    def _settled_digest(self) -> int | None:
        # While the digest of a tick that left nothing to do stays the same, there is nothing to do.
        return self._digest if self._claims.is_settled else None

    def drain_all(self) -> None:
        """Begin to release all partitions because this process will end."""
        # A partition that cannot drain yet needs another call.
        self._claims.drain_all(time.monotonic())

    def note_leaving(self, conn: Connection[Any]) -> None:
        """Record in the database that this process ends on purpose, so that its events are not blamed for a crash."""
        # This is recorded once for each instance id.
        # Otherwise the events would be suspected of killing the process. The supervisor records the same, unless it
        # died.
        if self.instance_id is not None and self._leaving_noted != self.instance_id:
            instances.mark_leaving(conn, self._schema, self.instance_id)
            self._leaving_noted = self.instance_id

    def drop_tenures(self, tenures: Sequence[Tenure]) -> None:
        """End the ownership of partitions that this process has lost, and report the loss."""
        self._report_lost(self._claims.lose(tenures))

    def drop_refused(self, tenures: Sequence[Tenure]) -> None:
        """Give up partitions after the database has refused a write because other processes own them."""
        # The loss is reported. Any thread that writes may call this.
        self._observers.refused(len(tenures))
        text = "the database refused a write about %s (%s), owned by other processes by now: nothing was written"
        self._context.log_partitions("fence_rejection", text, [tenure.number for tenure in tenures])
        self.drop_tenures(tenures)

    def _report_lost(self, lost: LostPartitions) -> None:
        # All partitions are lost by now, because an observer may be slow.
        for number in (*lost.running_numbers, *lost.draining_numbers):
            self._observers.lost(number)
        text = "lost %s (%s): unsaved events are delivered again by the next owner"
        for name, numbers in (("lost", lost.running_numbers), ("lost_draining", lost.draining_numbers)):
            if numbers:
                self._context.log_partitions(name, text, numbers)

    def _apply_decision(self, conn: Connection[Any], me: UUID, rows: Sequence[TickPartition]) -> None:
        # The order is: drop, drain, take up, claim, load, as a partition may be lost and found in one check.
        decision = decide_changes(rows, self._claims.list_tenures())
        if decision.lost_tenures:
            # In another table this process owns nothing, so check first that the table is the right one.
            proof.check_intact(conn, self._schema, self._subscription)
            self.drop_tenures(decision.lost_tenures)
        self._claims.drain(decision.surplus_partitions, time.monotonic())
        # A claim that was sent on an abandoned connection has arrived since.
        if decision.unknown_partitions:
            self._adopt(
                conn,
                cursors.take_up_partitions(conn, self._schema, self._subscription, me, decision.unknown_partitions),
            )
        if decision.may_claim and not self._slot[STOPPING]:
            self._adopt(conn, cursors.claim_partitions(conn, self._schema, self._subscription, me))
        self._load_parked(conn, find_stale(rows, self._claims.list_tenures()))

    def _adopt(self, conn: Connection[Any], rows: list[OwnedPartition]) -> None:
        self._claims.adopt(rows, time.monotonic())
        self._report_claimed(rows)
        self._load_parked(conn, {row.partition: row.parked_version for row in rows})
        if rows:
            self._context.log("claimed", "claimed %s", format_count(len(rows), "partition"), partitions=len(rows))
        if orphans := [row.partition for row in rows if row.suspect_until]:
            self._context.log_partitions("takeover", TAKEOVER, orphans)

    def _report_claimed(self, rows: Iterable[OwnedPartition]) -> None:
        for row in rows:
            self._observers.claimed(row.partition, row.epoch, row.unowned_seconds)
            self._on_claimed(row.floor_id)

    def _load_parked(self, conn: Connection[Any], versions: dict[int, int]) -> None:
        # The parked rows are loaded with their versions, after the claim has committed. Rows that a save
        # may have changed meanwhile are loaded again. If all tries fail, a later check finds the old version.
        numbers = list(versions)
        for _ in range(LOAD_TRIES):
            if not numbers:
                break
            loading = self._claims.begin_loading(numbers)
            where = (conn, self._schema, self._subscription, numbers)
            blocking, loose = parked.list_blocking(*where), parked.count_loose_rows(*where)
            ahead = parked.list_ahead(*where) if loading.needs_ahead else []
            index = ParkedIndex(blocking, loose, ahead, parked.list_spills(*where))
            sure = self._claims.finish_loading(loading, index, versions, time.monotonic())
            numbers = [number for number in numbers if number not in sure]
