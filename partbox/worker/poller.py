"""The thread that reads: fences, pages, ticks, and the bodies of parked records.

It owns both connections of the process. When either is lost both are closed, everything that was read is forgotten,
and reading goes on from the *saved* cursors: after a crash of the server that lost a tail, ids and transaction ids are
given out again, and nothing remembered about them holds. Only what is done or running is remembered, by id and event
id, so that a plain reconnect starts nothing twice.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db import cursors, migrate, parked, records
from partbox.db.blocking import lean
from partbox.db.connect import check, connect
from partbox.db.cursors import Owned, Seen
from partbox.db.records import Shared
from partbox.errors import SchemaError
from partbox.rules.horizon import Horizon, Snapshot
from partbox.rules.progress import Page
from partbox.settings import Settings
from partbox.worker.dispatcher import Dispatcher
from partbox.worker.holdings import Holdings
from partbox.worker.intake import Intake
from partbox.worker.partition import Partition
from partbox.worker.room import Room
from partbox.worker.saver import Saver
from partbox.worker.slot import OWNED, POLL_TICK, STOPPING, Slot, boottime

log = logging.getLogger("partbox.worker")

TICK = 0.25
LINGER = 0.1  # seconds for which looks stay `poll_busy` apart after something came
BACKOFF = 1.5
CHAINS = 50
DUE = 200
LOOK_AGAIN = 0.05
RECONNECT = (0.1, 2.0)


class Poller:
    """Reads the partitions of one process until it is told to stop and they are released."""

    def __init__(
        self, holdings: Holdings, dispatcher: Dispatcher, intake: Intake, slot: Slot, settings: Settings,
        subscription: str, dsn: Callable[[], str],
    ) -> None:
        self._holdings = holdings
        self._dispatcher = dispatcher
        self._intake = intake
        self._slot = slot
        self._settings = settings
        self._schema = settings.schema_name
        self._subscription = subscription
        self._dsn = dsn
        self._room = Room(settings.page, settings.window, settings.max_parked, settings.window_bytes)
        self._horizon = Horizon()
        self._me: UUID | None = None
        self._conn: Connection[Any]
        self._wake = threading.Event()
        self._broken = threading.Event()
        self._ended = threading.Event()
        self._tick_at = 0.0
        self._brought_at = 0.0
        self._looked_at = 0.0
        self._pause = settings.poll_busy
        self.failure: BaseException | None = None
        self.saver = Saver(
            holdings, slot, self._schema, subscription, on_lost=self.lose, on_released=self._released,
            on_saved=self._wake.set, on_broken=self._break,
        )
        self._thread = threading.Thread(target=self._run, name="partbox-poller", daemon=True)

    def start(self) -> None:
        self.saver.start()
        self._thread.start()

    def wake(self) -> None:
        """Look at once."""
        self._pause = self._settings.poll_busy
        self._wake.set()

    def end(self) -> None:
        """End now, whatever is still owned."""
        self._ended.set()
        self._wake.set()
        self._thread.join()
        self.saver.stop()

    def lose(self, partition: Partition) -> None:
        """The partition is no longer mine. While handlers of it still run it stays, as a ghost that nothing joins."""
        with self._holdings.lock:
            known = partition.lost
            partition.lose()
            self._holdings.dirty.discard(partition)
            self._forget_ghost(partition)
        if not known:
            log.warning("partition %d (epoch %d) is lost: another process may deliver its events again",
                        partition.number, partition.epoch)

    def _forget_ghost(self, partition: Partition) -> None:
        if partition.lost and not partition.running:
            self._holdings.drop(partition)

    def _released(self, partition: Partition) -> None:
        with self._holdings.lock:
            self._holdings.drop(partition)
        log.debug("partition %d is released", partition.number)

    def _break(self) -> None:
        self._broken.set()
        self._wake.set()

    # Connections.

    def _run(self) -> None:
        pause = RECONNECT[0]
        try:
            while not self._ended.is_set():
                try:
                    self._session()
                    pause = RECONNECT[0]
                except SchemaError:
                    raise
                except Error as error:
                    log.error("the connection is lost and made anew: %s", str(error).strip())
                    self._ended.wait(pause)
                    pause = min(RECONNECT[1], pause * 2)
        except BaseException as error:
            log.critical("the poller ends: %s", error, exc_info=not isinstance(error, SchemaError))
            self.failure = error
            self._ended.set()

    def _session(self) -> None:
        """From connecting to the loss of either connection."""
        with self._connect("poller") as conn, self._connect("saver") as saving:
            try:
                self._conn = conn
                self._broken.clear()
                check(conn, self._schema)
                migrate.check(conn, self._schema)
                lean(conn)
                self._horizon, self._looked_at = Horizon(), 0.0
                self._identify(saving)
                while not self._ended.is_set() and not self._broken.is_set():
                    self._try_step(saving)
            finally:
                self.saver.connected(None, None)

    def _connect(self, role: str) -> Connection[Any]:
        return connect(
            self._dsn(), lease=self._settings.lease, pooler=self._settings.pooler, name=f"partbox {role}"
        )

    def _identify(self, saving: Connection[Any]) -> None:
        """Be who the supervisor says, and take up what the database says is mine."""
        instance = self._slot.instance
        if instance != self._me:
            for partition in list(self._holdings.partitions.values()):
                self.lose(partition)
        self._me = instance
        mine = cursors.owned(self._conn, self._schema, self._subscription, instance) if instance else []
        self._take_up(mine)
        self.saver.connected(saving, instance)

    def _take_up(self, mine: list[Owned]) -> None:
        """After a loss of connection: what is still mine is read anew, from its saved cursor."""
        rows = {row.partition: row for row in mine}
        for partition in list(self._holdings.partitions.values()):
            row = rows.get(partition.number)
            if row is None or row.epoch != partition.epoch:
                self.lose(partition)
        now = time.monotonic()
        with self._holdings.lock:
            for row in mine:
                known = self._holdings.partitions.get(row.partition)
                if known is not None and not known.lost:
                    known.reset()
                    known.begin(row, now)
        self._adopt([row for row in mine if not self._holds(row.partition)])
        self._load([row.partition for row in mine])

    def _holds(self, number: int) -> bool:
        partition = self._holdings.partitions.get(number)
        return partition is not None and not partition.lost

    def _adopt(self, rows: list[Owned]) -> None:
        now = time.monotonic()
        with self._holdings.lock:
            for row in rows:
                partition = Partition(row, now)
                before = self._holdings.partitions.get(row.partition)
                if before is not None and before.running:
                    partition.waits_for = before
                self._holdings.partitions[row.partition] = partition
        for row in rows:
            self._horizon.claim(row.floor_id)

    def _load(self, numbers: list[int]) -> None:
        """The parked rows of these partitions, read after their claim has committed."""
        if not numbers:
            return
        where = (self._conn, self._schema, self._subscription, numbers)
        blocking, ahead, open_rows = parked.blocking(*where), parked.ahead(*where), parked.open_rows(*where)
        now = time.monotonic()
        with self._holdings.lock:
            for number in numbers:
                partition = self._holdings.partitions[number]
                mine = [row for row in blocking if row.partition == number]
                for key in partition.load(mine, open_rows.get(number, 0), now):
                    self._holdings.wake(partition, key)
            for number, record_id in ahead:
                self._holdings.partitions[number].ahead.add(record_id)

    # One step.

    def _try_step(self, saving: Connection[Any]) -> None:
        """A statement that fails on a live connection is tried again and resets nothing."""
        try:
            self._step(saving)
        except Error as error:
            if self._conn.closed:
                raise
            log.error("reading failed and is tried again: %s", str(error).strip())
            self._ended.wait(RECONNECT[0])

    def _step(self, saving: Connection[Any]) -> None:
        self._slot[POLL_TICK] = boottime()
        self._dispatcher.note_running()
        self._wake.clear()
        if self._slot.instance != self._me:
            self._identify(saving)
        if self._slot[STOPPING]:
            self._drain_all()
        now = time.monotonic()
        if now >= self._tick_at:
            self._tick()
            self._tick_at = now + TICK
        self._run_blocked()
        brought = self._poll()
        self._wait(brought)

    def _wait(self, brought: bool) -> None:
        now = time.monotonic()
        if brought:
            self._brought_at, self._pause = now, self._settings.poll_busy
            return
        if now - self._brought_at > LINGER:
            self._pause = min(self._settings.poll_idle, self._pause * BACKOFF)
        wakeup = self._holdings.next_wakeup()
        until = min(self._tick_at, now + self._pause, wakeup if wakeup is not None else self._tick_at)
        self._wake.wait(max(0.0005, until - now))

    def _drain_all(self) -> None:
        with self._holdings.lock:
            for partition in self._holdings.partitions.values():
                if not partition.stopping:
                    self._drain(partition)

    def _drain(self, partition: Partition) -> None:
        partition.drain()
        self._holdings.touch(partition)

    # Ownership.

    def _tick(self) -> None:
        """See which partitions are mine, to hold, to claim, to give up; and what is due in them."""
        if self._me is None:
            return
        seen = {row.partition: row for row in cursors.tick(self._conn, self._schema, self._subscription, self._me)}
        for partition in list(self._holdings.partitions.values()):
            self._compare(partition, seen.get(partition.number))
        if not self._slot[STOPPING] and any(row.assigned and row.free for row in seen.values()):
            self._claim()
        self._reload([row for row in seen.values() if row.owned])
        self._run_due([row.partition for row in seen.values() if row.owned and row.due is not None and row.due <= 0])
        self._slot[OWNED] = float(len(self._holdings.partitions))

    def _compare(self, partition: Partition, row: Seen | None) -> None:
        if partition.lost:
            with self._holdings.lock:
                self._forget_ghost(partition)
        elif row is None or not row.owned or row.epoch != partition.epoch:
            self.lose(partition)
        elif not row.assigned and not partition.draining:
            with self._holdings.lock:
                self._drain(partition)

    def _claim(self) -> None:
        assert self._me is not None
        rows = cursors.claim(self._conn, self._schema, self._subscription, self._me)
        self._adopt(rows)
        self._load([row.partition for row in rows])
        if rows:
            log.info("claimed %d partitions", len(rows))

    def _reload(self, rows: list[Seen]) -> None:
        """A command has changed parked rows: read those of its partitions again."""
        changed = []
        for row in rows:
            partition = self._holdings.partitions.get(row.partition)
            if partition is not None and not partition.stopping and partition.parked_version < row.parked_version:
                partition.parked_version = row.parked_version
                changed.append(row.partition)
        self._load(changed)

    # Parked records.

    def _run_blocked(self) -> None:
        """Heads of blocked keys that may run, with what may follow them."""
        with self._holdings.lock:
            found = self._holdings.awake(time.monotonic(), CHAINS)
        if not found:
            return
        rows = records.bodies(
            self._conn, self._schema, [(partition.number, row.id) for partition, _, rows in found for row in rows]
        )
        bodies = {row[1]: row for row in rows}
        with self._holdings.lock:
            for partition, key, chain in found:
                self._intake.chain(partition, key, chain, bodies)

    def _run_due(self, numbers: list[int]) -> None:
        """Parked rows that block nothing and are due."""
        numbers = [number for number in numbers if self._holds(number)]
        if not numbers:
            return
        with self._holdings.lock:
            held = [self._holdings.partitions[number] for number in numbers]
            taken = [id for partition in held for id in (*partition.taken, *partition.deleting)]
        stored = parked.due(self._conn, self._schema, self._subscription, numbers, taken, DUE)
        rows = records.bodies(self._conn, self._schema, [(row.partition, row.record_id) for row in stored])
        bodies = {row[1]: row for row in rows}
        with self._holdings.lock:
            for row in stored:
                partition = self._holdings.partitions[row.partition]
                if not partition.stopping:
                    self._intake.due(partition, row, bodies)

    # Reading.

    def _poll(self) -> bool:
        """Read what is new; whether anything came."""
        readable = [partition for partition in self._holdings.partitions.values() if _readable(partition)]
        fresh = [partition for partition in readable if partition.cursor.fresh]
        together = [partition for partition in readable if not partition.cursor.fresh]
        brought = self._read(fresh, alone=True) if fresh else False
        return (self._read(together, alone=False) if together else False) or brought

    def _read(self, partitions: list[Partition], *, alone: bool) -> bool:
        horizon = self._horizon
        rooms = self._rooms(partitions)
        xids, bounds = horizon.listed()
        if alone or not self._backlog(partitions, rooms):
            look = self._look(xids)
            if not alone and self._nothing_new(partitions, rooms, look):
                return False
        asks = [partition.cursor.ask(room) for partition, room in zip(partitions, rooms, strict=True)]
        shared = Shared(horizon.snapshot.text if horizon.snapshot else None, horizon.settled, xids, bounds)
        lowest = min([horizon.settled, *bounds])
        text, floor, rows = records.poll(
            self._conn, self._schema, asks, shared,
            lo=min(partition.cursor.lowest(lowest) for partition in partitions),
            hi=horizon.ceiling(max(ask.last_id for ask in asks)),
        )
        snapshot = Snapshot.parse(text)
        page = Page(text, horizon.read(snapshot))
        base = None if alone else Page(shared.snapshot or "", floor)
        self._room.learn(rows)
        self._intake.page(list(zip(partitions, asks, strict=True)), page, base, rows)
        if not alone:
            horizon.advance(snapshot)
        return bool(rows) or alone

    def _look(self, xids: list[int]) -> records.Look:
        look = records.look(self._conn, self._schema, xids)
        self._horizon.add(look.fence)
        self._looked_at = time.monotonic()
        return look

    def _backlog(self, partitions: list[Partition], rooms: list[int]) -> bool:
        """There is more to read below the newest fence, which is young enough: no need to look again first."""
        return time.monotonic() - self._looked_at < LOOK_AGAIN and any(
            partition.cursor.full and room for partition, room in zip(partitions, rooms, strict=True)
        )

    def _nothing_new(self, partitions: list[Partition], rooms: list[int], look: records.Look) -> bool:
        """The idle rule. An idle look is a fence too: the last step to "settled" needs no other traffic."""
        return self._horizon.still(look.fence.drawn, look.ended) and all(
            partition.cursor.lockstep and not (partition.cursor.full and room)
            for partition, room in zip(partitions, rooms, strict=True)
        )

    def _rooms(self, partitions: list[Partition]) -> list[int]:
        """The room of each partition. A window that is full for long is freed of what stands in its way."""
        window = self._room.window(len(partitions))
        now = time.monotonic()
        with self._holdings.lock:
            rooms = self._room.of(partitions)
            for partition, room in zip(partitions, rooms, strict=True):
                if room == 0 and partition.progress.unsaved() >= window and partition.running:
                    self._dispatcher.unstick(partition, now)
            return rooms


def _readable(partition: Partition) -> bool:
    """Not while it is draining, but for the rest of a cut page; not while its earlier self still runs handlers."""
    if partition.waits_for is not None and partition.waits_for.running == 0:
        partition.waits_for = None
    if partition.lost or partition.waits_for is not None:
        return False
    return not partition.draining or partition.cursor.until is not None
