"""Which partitions are mine: sees it at each tick, claims what is assigned and free, drains what is asked for."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db import cursors, parked
from partbox.db.cursors import Owned, Seen
from partbox.db.parked import Stored
from partbox.observe import Observers
from partbox.settings import Settings
from partbox.worker.holdings import Holdings
from partbox.worker.lane import Key
from partbox.worker.partition import Partition
from partbox.worker.slot import OWNED, STOPPING, Slot

log = logging.getLogger("partbox.worker")

TRIES = 3


class Ownership:
    """The partitions of one instance. Who that is says the slot; another identity means to drop everything."""

    def __init__(
        self,
        holdings: Holdings,
        slot: Slot,
        settings: Settings,
        subscription: str,
        *,
        letters: bool,
        observers: Observers,
        on_claimed: Callable[[int], None],
        on_reloaded: Callable[[Partition, Sequence[Key]], None],
    ) -> None:
        self._holdings = holdings
        self._window = settings.window
        self._letters = letters
        self._observers = observers
        self._on_reloaded = on_reloaded
        self._slot = slot
        self._schema = settings.schema_name
        self._subscription = subscription
        self._on_claimed = on_claimed
        self.me: UUID | None = None

    @property
    def outdated(self) -> bool:
        """The supervisor has given this process another identity, or taken it away."""
        return self._slot.version != self._holdings.version

    def take_up(self, conn: Connection[Any]) -> None:
        """On a new connection, or under a new identity: what is still mine is read anew, from its saved cursor."""
        version, self.me = self._slot.version, self._slot.instance
        rows = cursors.owned(conn, self._schema, self._subscription, self.me) if self.me else []
        epochs = {row.partition: row.epoch for row in rows}
        for partition in list(self._holdings.partitions.values()):
            if epochs.get(partition.number) != partition.epoch:
                self.lose(partition)
        kept = {number for number, partition in self._holdings.partitions.items() if not partition.lost}
        self._reset([row for row in rows if row.partition in kept])
        self._adopt([row for row in rows if row.partition not in kept])
        self._load(conn, {row.partition: row.parked_version for row in rows})
        # Not before: if a statement has failed, the step is tried again from here.
        self._holdings.version = version

    def tick(self, conn: Connection[Any]) -> tuple[list[int], float | None]:
        """See, claim, drain; the partitions in which a parked row is due, and the seconds until the next one is."""
        if self.me is None:
            return [], None
        seen = {row.partition: row for row in cursors.tick(conn, self._schema, self._subscription, self.me)}
        for partition in list(self._holdings.partitions.values()):
            self._compare(partition, seen.get(partition.number))
        if not self._slot[STOPPING] and any(row.assigned and row.free for row in seen.values()):
            self._claim(conn)
        self._reload(conn, [row for row in seen.values() if row.owned])
        self._slot[OWNED] = float(len(self._holdings.partitions))
        dues = {row.partition: row.due for row in seen.values() if row.owned and row.due is not None}
        later = [due for due in dues.values() if due > 0]
        return [partition for partition, due in dues.items() if due <= 0], min(later, default=None)

    def drain_all(self) -> None:
        """Give up everything: the process is to end."""
        with self._holdings.lock:
            for partition in self._holdings.partitions.values():
                if not partition.stopping:
                    self._drain(partition)

    def lose(self, partition: Partition) -> None:
        """No longer mine. While its handlers run it stays, as a ghost: its next self must wait for them."""
        with self._holdings.lock:
            known = partition.lost
            partition.lose()
            self._holdings.dirty.discard(partition)
            self._forget_ghost(partition)
        if not known:
            self._observers.lost(partition.number)
            log.log(
                logging.INFO if partition.draining else logging.WARNING,
                "partition %d (epoch %d) is lost: what was not saved is delivered again by its next owner",
                partition.number,
                partition.epoch,
            )

    def released(self, partition: Partition) -> None:
        """Its release is committed."""
        with self._holdings.lock:
            self._holdings.drop(partition)
        self._observers.released(partition.number)
        log.debug("partition %d is released", partition.number)

    def refused(self, partition: Partition) -> None:
        """The fence has refused a write about it: it is not mine any more."""
        self._observers.refused(1)
        self.lose(partition)

    def _compare(self, partition: Partition, row: Seen | None) -> None:
        if partition.lost:
            with self._holdings.lock:
                self._forget_ghost(partition)
        elif row is None or not row.owned or row.epoch != partition.epoch:
            if not self._just_released(partition):
                self.lose(partition)
        elif not row.assigned and not partition.draining:
            with self._holdings.lock:
                self._drain(partition)

    def _just_released(self, partition: Partition) -> bool:
        """The saver may have released it after it was listed, and before the tick looked."""
        return self._holdings.partitions.get(partition.number) is not partition

    def _forget_ghost(self, partition: Partition) -> None:
        if partition.lost and not partition.busy:
            self._holdings.drop(partition)

    def _drain(self, partition: Partition) -> None:
        partition.drain()
        self._holdings.touch(partition)

    def _claim(self, conn: Connection[Any]) -> None:
        assert self.me is not None
        rows = cursors.claim(conn, self._schema, self._subscription, self.me)
        self._adopt(rows)
        self._load(conn, {row.partition: row.parked_version for row in rows})
        for row in rows:
            self._observers.claimed(row.partition, row.epoch, row.pause)
        if rows:
            log.info("claimed %d partitions", len(rows))

    def _reset(self, rows: list[Owned]) -> None:
        now = time.monotonic()
        with self._holdings.lock:
            for row in rows:
                partition = self._holdings.partitions[row.partition]
                partition.reset()
                self._observers.forgotten(row.partition)
                partition.begin(row, now)
                if partition.draining:
                    self._holdings.touch(partition)
        self._claimed(rows)

    def _adopt(self, rows: list[Owned]) -> None:
        now = time.monotonic()
        with self._holdings.lock:
            for row in rows:
                partition = Partition(row, now, window=self._window, letters=self._letters)
                ghost = self._holdings.partitions.get(row.partition)
                partition.waits_for = ghost if ghost is not None and ghost.busy else None
                self._holdings.partitions[row.partition] = partition
        self._claimed(rows)

    def _claimed(self, rows: list[Owned]) -> None:
        for row in rows:
            self._on_claimed(row.floor_id)

    def _reload(self, conn: Connection[Any], rows: list[Seen]) -> None:
        """A command has changed parked rows, or they could not be read before: read those partitions' again."""
        changed = {}
        for row in rows:
            partition = self._holdings.partitions.get(row.partition)
            if partition is not None and not partition.stopping and partition.parked_version < row.parked_version:
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
            held = [self._holdings.partitions[number] for number in numbers if number in self._holdings.partitions]
            with self._holdings.lock:
                before = {each: each.commits for each in held if not each.lost and not each.sending}
            where = (conn, self._schema, self._subscription, numbers)
            blocking, open_rows = parked.blocking(*where), parked.open_rows(*where)
            ahead = parked.ahead(*where) if any(partition.parked_version < 0 for partition in held) else []
            with self._holdings.lock:
                sure = {
                    each.number: each
                    for each, commits in before.items()
                    if each.commits == commits and not each.sending
                }
                for number, record_id in ahead:
                    if number in sure and sure[number].parked_version < 0:
                        sure[number].ahead.add(record_id)
                for number, partition in sure.items():
                    self._take(partition, [row for row in blocking if row.partition == number], open_rows)
                    partition.parked_version = versions[number]
            numbers = [number for number in numbers if number not in sure]

    def _take(self, partition: Partition, rows: list[Stored], open_rows: dict[int, int]) -> None:
        keys = partition.load(rows, open_rows.get(partition.number, 0), time.monotonic())
        for key in keys:
            self._holdings.wake(partition, key)
        if partition.parks:
            self._holdings.touch(partition)
        self._on_reloaded(partition, keys)
