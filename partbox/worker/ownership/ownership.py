"""Keeps the partitions of one process: claims what is assigned and free, drains what is asked for, at each tick.

A tick observes, decides, and acts: a statement says what the database has, `decide` compares it with what is held, and
each consequence is one statement, one verb of `engine.claims`, and a report of what came back.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from partbox.db.delivery import cursors, instances, parked, proof
from partbox.db.delivery.cursors import OperatorBounds
from partbox.db.delivery.idle_check import IdleCheck
from partbox.protocol.rows import OwnedPartition, TickPartition
from partbox.text.wording import counted
from partbox.worker.context import Context
from partbox.worker.engine.claims import LostPartitions, ParkedIndex
from partbox.worker.engine.partition import Tenure
from partbox.worker.ownership.decision import decide, find_stale, merge_limits
from partbox.worker.slot import OWNED, PLAN_COUNT, STOPPING

LOAD_TRIES = 3
TAKEOVER = (
    "took over %s (%s) of a process that died: what it had not saved is delivered again, and what may have killed it "
    "is charged with an attempt before it runs"
)


class Tick(NamedTuple):
    """The partitions in which a parked row is due, the seconds until the next one is, and a look at the log; none by a
    process that is nobody. `is_calm`: nothing has changed since the last one."""

    idle_check: IdleCheck | None
    due: list[int]
    next_due_in: float | None
    is_calm: bool
    awaits_release: bool  # a partition that another still owns


class Ownership:
    """The partitions of one instance, which the slot names; another identity means to drop everything.

    The poller's thread, but for `drop_refused`. `claimed` is called with the saved floor of each partition that is
    mine.
    """

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
        self._plan_count = 0.0  # those made when the last tick began
        self.me: UUID | None = None
        self._leaving_noted: UUID | None = None
        self._operator_limits: dict[str, OperatorBounds] = {}  # that operators have set, as they are in force
        self._digest: int | None = None  # of the partitions of the last tick; what is taken up gets another epoch
        self._idle_check: IdleCheck | None = None  # the last tick's, if no id was drawn between it and the one before
        self._last_check: IdleCheck | None = None  # the last tick's

    @property
    def is_outdated(self) -> bool:
        """The supervisor has given this process another identity, or taken it away."""
        return self._slot.version != self._engine.version

    @property
    def is_replanned(self) -> bool:
        """The supervisor has made a plan since the last tick, or others have said that they changed something."""
        return self._wakeup.has_changes or self._slot[PLAN_COUNT] != self._plan_count

    def resume(self, conn: Connection[Any]) -> None:
        """On a new connection, or under a new identity: what is still mine is read anew, from its saved cursor.

        ⛨ DESIGN 4. Under a new epoch, for what the lost connection had sent may still be on its way. So the epoch that
        was known does not tell what is mine, an answer may have been lost; but nobody else can have owned it while this
        identity did.
        """
        version, self.me = self._slot.version, self._slot.instance
        self._idle_check = self._last_check = None  # perhaps of another life of the server
        rows = self._raise_epochs(conn, self.me) if self.me else []
        taken = self._claims.take_up(rows, time.monotonic())
        self._report_lost(taken.lost)
        for row in taken.kept:
            self._observers.forgotten(row.partition)
            self._on_claimed(row.floor_id)
        self._report_claimed(taken.new)
        self._load_parked(conn, {row.partition: row.parked_version for row in rows})
        # Not before: if a statement has failed, the step is tried again from here.
        self._engine.version = version

    def _raise_epochs(self, conn: Connection[Any], me: UUID) -> list[OwnedPartition]:
        """Take up all that is mine, from the epoch that it has: one that was sent before may arrive in between."""
        where = (conn, self._schema, self._subscription, me)
        while True:
            seen = cursors.tick(*where, ()).partitions or ()
            epochs = {row.partition: row.epoch for row in seen if row.owned}
            rows = cursors.take_up(*where, epochs)
            if len(rows) == len(epochs):
                return rows

    def tick(self, conn: Connection[Any], listed: Iterable[int] = ()) -> Tick:
        """See, claim, drain; and in the same round trip look whether one of the `listed` transactions has ended."""
        self._plan_count, self._wakeup.has_changes = self._slot[PLAN_COUNT], False
        if self.me is None:
            return Tick(None, [], None, False, False)
        listed, settled = [*listed], self._settled_digest
        if not listed and settled is not None and self._idle_check is not None:  # while the log moves nobody asks
            look = cursors.calm(conn, self._schema, self._subscription, self.me, settled, self._idle_check)
            if look is not None:
                return Tick(look, [], None, True, False)
        seen = cursors.tick(conn, self._schema, self._subscription, self.me, listed, settled)
        before, self._last_check = self._last_check, seen.look
        self._idle_check = seen.look if before is not None and before.fence.drawn == seen.look.fence.drawn else None
        if seen.partitions is not None:
            self._digest = None  # if the answer fails, nothing is settled by it
            if seen.limits != self._operator_limits:  # before anything is claimed: its first event waits for its turn
                self._context.limits.override(merge_limits(seen.limits, self._context.limits.declared))
                self._operator_limits = seen.limits
            self._apply_decision(conn, self.me, seen.partitions)
            self._claims.note_tick(seen.partitions, seen.dues)
            self._digest = seen.digest
        self._slot[OWNED] = float(self._claims.count())
        due = [partition for partition, seconds in seen.dues.items() if seconds <= 0]
        later = [seconds for seconds in seen.dues.values() if seconds > 0]
        awaits_release = any(row.assigned and not row.owned and not row.free for row in seen.partitions or ())
        return Tick(seen.look, due, min(later, default=None), seen.partitions is None, awaits_release)

    @property
    def _settled_digest(self) -> int | None:
        """The digest of the last tick, if it left nothing to be done: as long as it is the same, nothing is."""
        return self._digest if self._claims.settled else None

    def drain_all(self) -> None:
        """Give up everything: the process is to end. What may not drain yet waits for another call."""
        self._claims.drain_all(time.monotonic())

    def note_leaving(self, conn: Connection[Any]) -> None:
        """Note in its row, once, that this process was told to end: then what it runs is accused of nothing.

        Its supervisor notes the same, unless that has died.
        """
        if self.me is not None and self._leaving_noted != self.me:
            instances.leave(conn, self._schema, self.me)
            self._leaving_noted = self.me

    def drop_tenures(self, tenures: Sequence[Tenure]) -> None:
        """End these: the partitions are not mine any more."""
        self._report_lost(self._claims.lose(tenures))

    def drop_refused(self, tenures: Sequence[Tenure]) -> None:
        """End tenures about which the fence (⛨ DESIGN 5) has refused a write: they are not mine. By whoever writes."""
        self._observers.refused(len(tenures))
        text = "the fence refused a write about %s (%s), owned by others by now: nothing of it was written"
        self._context.log_partitions("fence_rejection", text, [tenure.number for tenure in tenures])
        self.drop_tenures(tenures)

    def _report_lost(self, lost: LostPartitions) -> None:
        for number in (*lost.running, *lost.draining):  # once all are lost: an observer may take its time
            self._observers.lost(number)
        text = "lost %s (%s): what was not saved is delivered again by the next owner"
        for name, numbers in (("lost", lost.running), ("lost_draining", lost.draining)):
            if numbers:
                self._context.log_partitions(name, text, numbers)

    def _apply_decision(self, conn: Connection[Any], me: UUID, rows: Sequence[TickPartition]) -> None:
        """Lose, drain, find, claim, reload: in this order, for a partition may be lost and found in one tick."""
        decision = decide(rows, self._claims.owned())
        if decision.taken:
            # In another table nothing is mine (⛨ DESIGN 4: believe nothing unseen).
            proof.intact(conn, self._schema, self._subscription)
            self.drop_tenures(decision.taken)
        self._claims.drain(decision.surplus, time.monotonic())
        if decision.unknown:  # a claim of a connection that was given up has arrived since
            self._adopt(conn, cursors.take_up(conn, self._schema, self._subscription, me, decision.unknown))
        if decision.may_claim and not self._slot[STOPPING]:
            self._adopt(conn, cursors.claim(conn, self._schema, self._subscription, me))
        self._load_parked(conn, find_stale(rows, self._claims.owned()))

    def _adopt(self, conn: Connection[Any], rows: list[OwnedPartition]) -> None:
        self._claims.adopt(rows, time.monotonic())
        self._report_claimed(rows)
        self._load_parked(conn, {row.partition: row.parked_version for row in rows})
        if rows:
            self._context.log("claimed", "claimed %s", counted(len(rows), "partition"), partitions=len(rows))
        if orphans := [row.partition for row in rows if row.suspect_until]:
            self._context.log_partitions("takeover", TAKEOVER, orphans)

    def _report_claimed(self, rows: Iterable[OwnedPartition]) -> None:
        for row in rows:
            self._observers.claimed(row.partition, row.epoch, row.pause)
            self._on_claimed(row.floor_id)

    def _load_parked(self, conn: Connection[Any], versions: dict[int, int]) -> None:
        """Read the parked rows of these partitions, after their claim has committed (EVIDENCE B6), and their versions.

        What a save may have changed meanwhile is read again; if each try fails, a later tick finds the version behind.
        """
        numbers = list(versions)
        for _ in range(LOAD_TRIES):
            if not numbers:
                break
            loading = self._claims.loading(numbers)
            where = (conn, self._schema, self._subscription, numbers)
            blocking, loose = parked.blocking(*where), parked.loose_rows(*where)
            ahead = parked.ahead(*where) if loading.needs_ahead else []
            index = ParkedIndex(blocking, loose, ahead)
            sure = self._claims.loaded(loading, index, versions, time.monotonic())
            numbers = [number for number in numbers if number not in sure]
