"""Keeps the partitions of one process: claims what is assigned and free, drains what is asked for, at each tick."""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from partbox.db.delivery import cursors, instances, parked, proof
from partbox.db.delivery.idle_check import IdleCheck
from partbox.protocol.rows import Owned, SeenPartition, Stored
from partbox.text.wording import counted
from partbox.worker.context import Context
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.phase import Phase
from partbox.worker.slot import OWNED, PLANS, STOPPING

TRIES = 3
TAKEOVER = (
    "took over %s (%s) of a process that died: what it had not saved is delivered again, and what may have killed it "
    "is charged with an attempt before it runs"
)


class Tick(NamedTuple):
    """The partitions in which a parked row is due, the seconds until the next one is, and a look at the log; none by a
    process that is nobody. `is_calm`: nothing has changed since the last one."""

    look: IdleCheck | None
    due: list[int]
    soonest: float | None
    is_calm: bool
    awaits: bool  # a partition that another still owns


class Ownership:
    """The partitions of one instance. Who that is says the slot; another identity means to drop everything."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._window = context.settings.window
        self._letters = context.dead_letter is not None
        self._observers = context.observers
        self._slot = context.slot
        self._wakeup = context.wakeup
        self._schema = context.schema
        self._subscription = context.subscription
        self._signals = context.signals
        self._plans = 0.0  # those made when the last tick began
        self.me: UUID | None = None
        self._left: UUID | None = None
        # The digest of the partitions of the last tick, if it left nothing to be done. What is taken up gets another
        # epoch, and so another digest.
        self._settled: int | None = None
        self._still: IdleCheck | None = None  # the last tick's, if no id was drawn between it and the one before
        self._looked: IdleCheck | None = None  # the last tick's

    @property
    def outdated(self) -> bool:
        """The supervisor has given this process another identity, or taken it away."""
        return self._slot.version != self._engine.version

    @property
    def replanned(self) -> bool:
        """The supervisor has made a plan since the last tick, or others have said that they changed something."""
        return self._wakeup.changed or self._slot[PLANS] != self._plans

    def take_up(self, conn: Connection[Any]) -> None:
        """On a new connection, or under a new identity: what is still mine is read anew, from its saved cursor.

        Under a new epoch: what the lost connection had sent may still be on its way. So the epoch that was known does
        not tell what is mine, an answer may have been lost; but nobody else can have owned it while this identity did.
        """
        version, self.me = self._slot.version, self._slot.instance
        self._still = self._looked = None  # perhaps of another life of the server
        rows = cursors.take_up(conn, self._schema, self._subscription, self.me) if self.me else []
        mine = {row.partition for row in rows}
        self.lose([each for each in self._held() if each.number not in mine])
        kept = {partition.number for partition in self._held() if not partition.lost}
        self._reset([row for row in rows if row.partition in kept])
        self._adopt([row for row in rows if row.partition not in kept])
        self._load(conn, {row.partition: row.parked_version for row in rows})
        # Not before: if a statement has failed, the step is tried again from here.
        self._engine.version = version

    def tick(self, conn: Connection[Any], listed: Iterable[int] = ()) -> Tick:
        """See, claim, drain; and in the same round trip look whether one of the `listed` transactions has ended."""
        self._plans, self._wakeup.changed = self._slot[PLANS], False
        if self.me is None:
            return Tick(None, [], None, False, False)
        listed = [*listed]
        if not listed and self._settled is not None and self._still is not None:  # while the log moves nobody asks
            look = cursors.calm(conn, self._schema, self._subscription, self.me, self._settled, self._still)
            if look is not None:
                return Tick(look, [], None, True, False)
        seen = cursors.tick(conn, self._schema, self._subscription, self.me, listed, self._settled)
        before, self._looked = self._looked, seen.look
        self._still = seen.look if before is not None and before.fence.drawn == seen.look.fence.drawn else None
        if seen.partitions is not None:
            self._settled = None
            self._answer(conn, self.me, seen.partitions)
        with self._engine.lock:  # nothing is lost between the look at it and the word that all is settled
            self._slot[OWNED] = float(len(self._engine.partitions))
            if seen.partitions is not None:
                self._settled = seen.digest if self._settle(seen.partitions, seen.dues) else None
        due = [partition for partition, seconds in seen.dues.items() if seconds <= 0]
        later = [seconds for seconds in seen.dues.values() if seconds > 0]
        awaits = any(row.assigned and not row.owned and not row.free for row in seen.partitions or ())
        return Tick(seen.look, due, min(later, default=None), seen.partitions is None, awaits)

    def drain_all(self) -> None:
        """Give up everything: the process is to end. What is not settled yet waits for another call."""
        now = time.monotonic()
        with self._engine.lock:  # guards phases: a release is gathered of what has begun to drain
            for partition in self._engine.partitions.values():
                if not partition.stopping and partition.may_drain(now):
                    self._drain(partition)

    def leave(self, conn: Connection[Any]) -> None:
        """Note in its row, once, that this process was told to end: then what it runs is accused of nothing.

        Its supervisor notes the same, unless that has died.
        """
        if self.me is not None and self._left != self.me:
            instances.leave(conn, self._schema, self.me)
            self._left = self.me

    def lose(self, partitions: Sequence[Partition]) -> None:
        """No longer mine. While their handlers run they stay, as predecessors: their next selves must wait for them."""
        lost: dict[str, list[int]] = {"lost": [], "lost_draining": []}
        for partition in partitions:
            with self._engine.lock:  # runners and the saver see the partition either held or lost
                before = partition.phase
                self._settled = None  # if the database still says that it is mine, the next tick must hear it
                partition.lose()
                self._engine.dirty.discard(partition)
                self._drop_if_quiet(partition)
            if before is not Phase.LOST:
                lost["lost_draining" if before is Phase.DRAINING else "lost"].append(partition.number)
        for number in chain(*lost.values()):  # once all are lost: an observer may take its time
            self._observers.lost(number)
        text = "lost %s (%s): what was not saved is delivered again by the next owner"
        for name, numbers in lost.items():
            if numbers:
                self._context.log_partitions(name, text, numbers)

    def _held(self) -> list[Partition]:
        """Those that I have now: the saver drops what it has released."""
        with self._engine.lock:  # the saver drops what it has released
            return list(self._engine.partitions.values())

    def refused(self, partitions: Sequence[Partition]) -> None:
        """The fence has refused a write about them: they are not mine any more."""
        self._observers.refused(len(partitions))
        text = "the fence refused a write about %s (%s), owned by others by now: nothing of it was written"
        self._context.log_partitions("fence_rejection", text, [partition.number for partition in partitions])
        self.lose(partitions)

    def _answer(self, conn: Connection[Any], me: UUID, rows: Sequence[SeenPartition]) -> None:
        """See, claim, drain, reload."""
        seen = {row.partition: row for row in rows}
        self._compare(conn, seen)
        self._find(conn, [row.partition for row in rows if row.owned])
        if not self._slot[STOPPING] and any(row.assigned and row.free for row in rows):
            self._take_on(conn, cursors.claim(conn, self._schema, self._subscription, me))
        self._reload(conn, [row for row in rows if row.owned])

    def _settle(self, rows: Sequence[SeenPartition], dues: Mapping[int, float]) -> bool:
        """Forget predecessors that are quiet; True if I hold just what these rows say, and nothing is left to be done.

        As long as they say the same, a tick need not look at them. Lock held.
        """
        held = self._engine.partitions
        for number, partition in held.items():
            partition.parked.due_read |= dues.get(number, 1.0) > 0
            if not partition.has_running_predecessor:
                partition.predecessor = None
        return {row.partition for row in rows} == held.keys() and all(_agrees(held[row.partition], row) for row in rows)

    def _compare(self, conn: Connection[Any], seen: Mapping[int, SeenPartition]) -> None:
        """Lose what was taken, drain what is asked for, forget what was lost before and is quiet now."""
        taken = [each for each in self._held() if self._was_taken(each, seen.get(each.number))]
        if taken:
            proof.intact(conn, self._schema, self._subscription)  # in another table nothing is mine
            self.lose(taken)
        now = time.monotonic()
        with self._engine.lock:  # guards phases, and what the saver is about to drop
            for partition in list(self._engine.partitions.values()):
                row = seen.get(partition.number)
                if partition.lost:
                    self._drop_if_quiet(partition)
                elif row is not None and not row.assigned and not partition.draining and partition.may_drain(now):
                    self._drain(partition)

    def _was_taken(self, partition: Partition, row: SeenPartition | None) -> bool:
        """True if it was mine until now, and the database says that it is not."""
        if partition.lost or (row is not None and row.owned and row.epoch == partition.epoch):
            return False
        with self._engine.lock:  # the saver may have released it after it was listed, or may be about to learn that
            leaving = partition.draining and partition.last_save.under_way
            return not leaving and self._engine.partitions.get(partition.number) is partition

    def _drop_if_quiet(self, partition: Partition) -> None:
        if partition.lost and not partition.busy:
            self._engine.drop(partition)

    def _drain(self, partition: Partition) -> None:
        partition.drain()
        self._engine.touch(partition)

    def _find(self, conn: Connection[Any], owned: Sequence[int]) -> None:
        """Take what is mine and not known to be: a claim of a connection that was given up has arrived since."""
        assert self.me is not None
        with self._engine.lock:  # the saver drops what it has released
            held = self._engine.partitions
            unknown = [number for number in owned if number not in held or held[number].lost]
        if unknown:  # unless the saver has just released it
            self._take_on(conn, cursors.take_up(conn, self._schema, self._subscription, self.me, unknown))

    def _take_on(self, conn: Connection[Any], rows: list[Owned]) -> None:
        self._adopt(rows)
        self._load(conn, {row.partition: row.parked_version for row in rows})
        if rows:
            self._context.log("claimed", "claimed %s", counted(len(rows), "partition"), partitions=len(rows))
        if orphans := [row.partition for row in rows if row.suspect_until]:
            self._context.log_partitions("takeover", TAKEOVER, orphans)

    def _reset(self, rows: list[Owned]) -> None:
        now = time.monotonic()
        with self._engine.lock:  # runners see a partition as it was, or in its new incarnation
            for row in rows:
                partition = self._engine.partitions[row.partition]
                partition.reset(now)
                partition.begin(row, now)
        for row in rows:
            self._observers.forgotten(row.partition)
            self._signals.claimed(row.floor_id)

    def _adopt(self, rows: list[Owned]) -> None:
        now = time.monotonic()
        with self._engine.lock:  # guards the partitions
            for row in rows:
                partition = Partition(row, now, window=self._window, letters=self._letters)
                predecessor = self._engine.partitions.get(row.partition)
                partition.predecessor = predecessor if predecessor is not None and predecessor.busy else None
                self._engine.partitions[row.partition] = partition
        for row in rows:
            self._observers.claimed(row.partition, row.epoch, row.pause)
            self._signals.claimed(row.floor_id)

    def _reload(self, conn: Connection[Any], rows: list[SeenPartition]) -> None:
        """A command has changed parked rows, or they could not be read before: read those partitions' again."""
        changed, held = {}, {partition.number: partition for partition in self._held()}
        with self._engine.lock:  # guards phases and versions
            for row in rows:
                partition = held.get(row.partition)
                if partition is not None and not partition.stopping and partition.parked.version < row.parked_version:
                    changed[row.partition] = row.parked_version
        self._load(conn, changed)

    def _load(self, conn: Connection[Any], versions: dict[int, int]) -> None:
        """The parked rows of these partitions, read after their claim has committed, and the version that they have.

        While a save changes them it cannot be told what has been read: then another time, the version tells.
        """
        numbers = list(versions)
        for _ in range(TRIES):
            if not numbers:
                break
            held = [partition for partition in self._held() if partition.number in numbers]
            with self._engine.lock:  # a save that is under way changes rows: what is read meanwhile is not believed
                sure_now = [each for each in held if not each.lost and not each.last_save.under_way]
                before = {each: each.parked.changes for each in sure_now}
                new = any(not each.parked.known for each in held)
            where = (conn, self._schema, self._subscription, numbers)
            blocking, open_rows = parked.blocking(*where), parked.open_rows(*where)
            ahead = parked.ahead(*where) if new else []
            with self._engine.lock:  # nothing new runs before what blocks it is known
                sure = {
                    each.number: each
                    for each, changes in before.items()
                    if each.parked.changes == changes and not each.last_save.under_way
                }
                for number, record_id in ahead:
                    if number in sure and not sure[number].parked.known:
                        sure[number].parked.ahead.add(record_id)
                for number, partition in sure.items():
                    self._take(partition, [row for row in blocking if row.partition == number], open_rows)
                    partition.loaded(versions[number])
            numbers = [number for number in numbers if number not in sure]

    def _take(self, partition: Partition, rows: list[Stored], open_rows: dict[int, int]) -> None:
        keys = partition.parked.load(rows, open_rows.get(partition.number, 0), time.monotonic())
        for key in keys:
            self._engine.wake(partition, key)
        if partition.parked.pending:
            self._engine.touch(partition)
        self._signals.reloaded(partition, keys)


def _agrees(partition: Partition, row: SeenPartition) -> bool:
    """True if a partition is what its row says, and runs."""
    parked = partition.parked
    runs = partition.phase is Phase.RUNNING and partition.predecessor is None and parked.due_read
    is_mine = row.assigned and row.owned and row.epoch == partition.epoch
    return runs and is_mine and parked.version >= row.parked_version
