"""One owned partition in memory: where it is read, what is finished, what is parked, what runs.

Everything is touched only with the lock of `Holdings` held, but for `cursor`, which is the poller's own, and for
`stopping` and `life`, which runners read without it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from partbox.db.cursors import Owned
from partbox.db.parked import Park, Stored
from partbox.events import DeliveredEvent
from partbox.events.record import AVAILABLE_AT, EVENT_ID, microseconds
from partbox.events.reserved import NEVER
from partbox.rules.cursor import Cursor
from partbox.rules.page import Page
from partbox.rules.parking import OPEN, Chain, ParkedRow, Verdict
from partbox.rules.progress import Progress, Target
from partbox.worker.state.lane import Key, Lane, key_of
from partbox.worker.state.weight import Weight

SETTLE = 10.0
"""Seconds after a lost connection for which a partition that is asked for is kept, to find again what was done or ran
then. It is a matter of a few polls, unless it may not read: its window is full, or it has too many parked records."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
FAR = "9999-12-30T00:00:00+00:00"
"""When an event is due that is due after it, here and in queries: all time zones have a calendar then."""
NEVER_SAID = "it had failed in the table that it was imported from, before this subscription came to it"
Pair = tuple[int, bytes]


@dataclass(slots=True)
class Pending:
    """A park that is not committed yet, and the row in memory that it makes."""

    row: ParkedRow
    key: Key
    delay: float | None
    park: Park


class Partition:
    """A partition from claim to release, or until it is lost."""

    def __init__(self, owned: Owned, now: float, *, window: int, letters: bool) -> None:
        self.window = window
        self.letters = letters  # dead events are owed to a hook
        self.serial: bool  # a transactional handler runs in it, whose transaction will save it
        self.number = owned.partition
        self.draining = False
        self.lost = False
        self.stopping = False  # draining or lost: no handler starts
        self.running = 0  # lanes whose handler runs now
        self.waits_for: Partition | None = None  # itself in an earlier ownership, with handlers still running
        self.remembered: set[Pair] = set()
        self.unsure: set[Pair] = set()  # of them: what is not read again, if the save of it was committed after all
        self.reset_at = 0.0
        self.done_to = 0  # what of the remembered is read up to here need not be handed over to be found done
        self.again_to = 0  # what was done or ran when the connection was lost is found by reading up to here
        self.again: set[int] = set()  # ids of parked records that were done or in memory then
        self.accused: set[int] = set()  # charged by an owner that died, and not yet by this one
        self.lanes: dict[Key, Lane] = {}
        self.commits = 0  # saves that changed its parked rows
        self.life = 1  # how often it has been read anew, in this ownership
        self.begin(owned, now)

    def begin(self, owned: Owned, now: float) -> None:
        """Start reading from the saved cursor; nothing is known of parked rows yet."""
        self.epoch = owned.epoch
        self.serial = False
        self.parked_version = -1  # until its parked rows are loaded; nothing is read before that
        saved = Page(owned.snapshot, owned.floor_id)
        self.cursor = Cursor(self.number, owned.last_id, saved)
        self.progress = Progress(saved, owned.last_id)
        self.saved_at = now
        self.last_id_saved = owned.last_id
        self.finished_saved = 0  # of the records finished here the last save has known so many
        self.weight = Weight()
        self.narrow: int | None = None  # so many new records are asked for: of more there were too many bytes
        self.parks: dict[int, Pending] = {}
        self.done_ids: list[int] = []
        self.deleting: dict[int, bytes] = {}  # parked rows that are finished, until their deletion is committed
        self.taken: dict[int, ParkedRow] = {}  # parked rows that block nothing and are in memory
        self.due_read = False  # every parked row that blocks nothing and was due has been looked at
        self.ahead: set[int] = set()
        self.chains: dict[Key, Chain] = {}
        self.open_rows = 0  # parked rows that count against the brake
        self.open_unsaved = 0  # how many of them, more or fewer, the database does not know of
        self.sending = False  # a save of it is on its way: what the database knows of it cannot be told
        # The process that had it before has died, perhaps by one of the records up to this id that it had read by
        # then: of those that are new here, those of the first uncut page, and not more than the window holds.
        self.suspect_until = owned.suspect_until or 0
        self.suspects_left = self.window if self.suspect_until else 0

    # What was read and what became of it.

    def finish(self, pairs: list[Pair]) -> None:
        """These are done."""
        self.progress.finish(pairs)
        if self.weight.sizes:
            self.weight.drop(id for id, _ in pairs)

    def done_parked(self, event: DeliveredEvent) -> None:
        """A parked event is done: its row goes with the next save."""
        row: ParkedRow = event.parked
        self._unpark(row, key_of(event))
        self.delete(row, event.record[EVENT_ID])

    def vanished(self, row: ParkedRow, key: Key) -> None:
        """The record of a parked row is gone: so goes the row."""
        self._unpark(row, key)
        self.delete(row, b"")

    def delete(self, row: ParkedRow, event_id: bytes) -> None:
        """Delete a parked row with the next save."""
        self.weight.drop((row.id,))
        self.done_ids.append(row.id)
        self.deleting[row.id] = event_id
        row.charged = False
        if row.id in self.progress.finished:  # parked above the saved cursor: when read again, it is done, not parked
            self.progress.finished[row.id] = event_id
        self._count_open(-(row.state in OPEN))

    def park(self, event: DeliveredEvent, verdict: Verdict) -> ParkedRow:
        """Park an event, or change the row of a parked one, with the next save. Nothing blocks without an aggregate."""
        key = key_of(event)
        row: ParkedRow | None = event.parked
        new = row is None
        blocks = verdict.blocks and key[0] is not None
        delay = verdict.delay
        if row is None:
            row = ParkedRow(event.id, verdict.state, verdict.attempts, blocks)
            self.progress.finish([(row.id, b"")])
        else:
            self._unpark(row, key)
            self._count_open(-(row.state in OPEN))
        self._count_open(verdict.state in OPEN)
        row.state, row.attempts, row.blocks = verdict.state, verdict.attempts, blocks
        row.committed = row.loaded = row.suspect = row.accused = row.charged = False
        self.weight.drop((row.id,))
        if verdict.state == "dead" and self.letters:
            delay = 0.0
        if blocks:
            self.chains.setdefault(key, Chain()).add(row)
        else:
            self.taken[row.id] = row
            if delay is None and verdict.state in OPEN:
                delay = 0.0
        event.parked = row
        self._send(event, row, key, delay, new, verdict.error, verdict.trace)
        return row

    def hold(self, event: DeliveredEvent) -> None:
        """Park an event behind others of its key. A row that is parked already just waits again, uncharged."""
        row: ParkedRow | None = event.parked
        if row is not None and row.blocks and not row.charged:
            row.loaded = False
            self.weight.drop((row.id,))
        else:
            suspect = row is not None and row.suspect
            self.park(event, Verdict("held", event.attempt - 1, None, True, None)).suspect = suspect

    def widen(self) -> None:
        """Of what was asked for there were not too many bytes: a few more next time."""
        assert self.narrow is not None
        self.narrow += self.narrow // 4 + 1
        if self.narrow >= self.window:
            self.narrow = None

    def is_suspect(self, record_id: int) -> bool:
        """May this new record have killed the process that had the partition before?"""
        return self.suspects_left > 0 and record_id <= self.suspect_until

    def suspect(self, event: DeliveredEvent) -> None:
        """Park a suspect, so that it can be charged."""
        self.park(event, Verdict("ready", 0, None, True, None)).suspect = True
        self.suspects_left -= 1

    def uncharge(self, event: DeliveredEvent) -> None:
        """A charged event is not going to be started here."""
        self.park(event, Verdict("ready", event.attempt - 1, None, True, None))

    def schedule(self, event: DeliveredEvent) -> None:
        """Park an event whose time has not come; it never blocks. One whose time never comes is dead.

        It was imported so: for the subscriptions that there were then it is parked already, and that row stays.
        """
        micros = microseconds(event.record[AVAILABLE_AT])
        if micros == NEVER:
            self.park(event, Verdict("dead", 0, None, False, NEVER_SAID))
            return
        self.park(event, Verdict("scheduled", 0, None, False, None))
        try:
            due = min((_EPOCH + timedelta(microseconds=micros)).isoformat(), FAR)
        except OverflowError:  # perhaps infinity, which PostgreSQL 15 and 16 cannot subtract
            due = FAR
        park = self.parks[event.id].park
        park.delay, park.due = None, due

    def letter(self, event: DeliveredEvent, delay: float | None) -> None:
        """A dead event was given to the dead-letter hook (None), or is to be again after `delay` seconds."""
        row: ParkedRow = event.parked
        row.loaded = False
        self.weight.drop((row.id,))
        if row.id in self.parks:  # replayed meanwhile, and something has become of it already
            return
        key = key_of(event)
        self._send(event, row, key, delay, False)
        self.parks[row.id].park.letter = True

    def vanished_letter(self, row: ParkedRow) -> None:
        """The record of a dead row is gone: so goes the row."""
        self.delete(row, b"")

    def met(self, row: ParkedRow) -> bool:
        """Whether all that comes before this parked row in its key is known here.

        Not while its record is ahead of where the log was read: it was parked late, and what precedes it in its key is
        still to come.
        """
        return row.id not in self.ahead

    def passed(self, row: ParkedRow) -> bool:
        """Whether the saved cursor has passed the record of this parked row: without the row it does not come again."""
        return row.id not in self.ahead and row.id not in self.progress.finished

    def consumed(self, record_id: int) -> bool:
        """Whether a record just read is parked already, ahead of the saved cursor."""
        if record_id in self.ahead:
            self.ahead.discard(record_id)
            return True
        return False

    # Saving.

    def committed(self, parks: Iterable[Pending], done_ids: list[int], now: float) -> list[Key]:
        """These parks and deletions are committed; the keys whose chains may have something to run."""
        self.commits += 1
        for id in done_ids:
            self.deleting.pop(id, None)
            self.taken.pop(id, None)
        keys = []
        for pending in parks:
            row = pending.row
            row.due = None if pending.delay is None else now + pending.delay
            again = self.parks.get(row.id)
            if again is not None and again.row is row:
                continue  # changed again meanwhile
            row.committed = True
            if row.blocks:
                keys.append(pending.key)
            if row.blocks or not row.loaded:
                self.taken.pop(row.id, None)
        return keys

    def saved(self, target: Target, finished: int, now: float) -> None:
        """A save of this target is committed, which was made when so many records had been finished."""
        self.progress.saved(target)
        self.saved_at, self.last_id_saved, self.finished_saved = now, target.last_id, finished
        if self.unsure and self.parked_version >= 0 and self.due_read:
            self._forget_passed(min(target.page.floor, target.last_id))

    # Parked rows as stored.

    def load(self, rows: list[Stored], open_rows: int, now: float) -> list[Key]:
        """Take over the blocking rows as stored; those in memory already, or being deleted, stay as they are."""
        known = {row.id: row for chain in self.chains.values() for row in chain}
        kept = {id for id, row in known.items() if row.loaded or not row.committed} | self.deleting.keys()
        for key, chain in list(self.chains.items()):
            chain.rows = [row for row in chain if row.id in kept]
            if not chain.rows:
                del self.chains[key]
        for stored in rows:
            if stored.record_id not in kept and stored.aggregate_id is not None:
                due = None if stored.due is None else now + stored.due
                row = ParkedRow(stored.record_id, stored.state, stored.attempts, True, due)  # type: ignore[arg-type]
                self.judge_stored(stored, row)
                key = (stored.aggregate_type, stored.aggregate_id)
                self.chains.setdefault(key, Chain()).add(row)
                if stored.started and not row.accused:
                    self._take_back(stored, row, key)
        self.open_rows = open_rows + self.open_unsaved
        return list(self.chains)

    def judge_stored(self, stored: Stored, row: ParkedRow) -> None:
        """Whether a stored row is suspect or accused. What this very process charged did not kill it."""
        if stored.started and self.life == 1:
            self.accused.add(row.id)
        row.accused = stored.started and row.id in self.accused
        row.attempts -= stored.started and not row.accused
        row.suspect = stored.started or row.id <= self.suspect_until

    # Leaving.

    @property
    def busy(self) -> bool:
        """A handler of it runs, of this ownership or of an earlier one."""
        return self.running > 0 or (self.waits_for is not None and self.waits_for.busy)

    def may_begin(self) -> bool:
        """Not before its parked rows are known, nor while its earlier self still runs handlers."""
        if self.waits_for is not None and not self.waits_for.busy:
            self.waits_for = None
        return self.waits_for is None and self.parked_version >= 0

    def drain(self) -> None:
        """To be released: start nothing new."""
        self.draining = self.stopping = True

    def settled(self, now: float) -> bool:
        """Whether it may be drained: what was done or ran when a connection was lost is read again.

        So a release can save what became of it. The next owner would repeat it otherwise, though neither a lease nor a
        process was lost.
        """
        if self.life == 1 or now > self.reset_at + SETTLE:
            return True
        if self.parked_version < 0 or self.cursor.fresh or self.cursor.until is not None:
            return False
        if self.cursor.full and self.cursor.last_id < self.again_to:
            return False
        if self.again and not self.due_read:
            return False
        return not any(row.id in self.again and not row.loaded for chain in self.chains.values() for row in chain)

    def waiting(self) -> dict[int, DeliveredEvent]:
        """Every event that was read from the log and has not been started, by id."""
        return {event.id: event for lane in self.lanes.values() for event in list(lane.queue) if event.parked is None}

    def charged(self) -> list[DeliveredEvent]:
        """The charged events that are not going to be started, once it is stopping."""
        events = (event for lane in self.lanes.values() if not lane.running for event in lane.queue)
        return [event for event in events if event.parked is not None and event.parked.charged]

    def reset(self, now: float) -> None:
        """The connection was lost: forget what was read; what is done, or running, is remembered by id and event id.

        A drain begins anew, once that is found again. A runner looks at a lane's queue first and at the life then,
        without the lock: so the life changes first, and whoever sees the new queue sees the new life.
        """
        self.life += 1
        if now > self.reset_at + SETTLE:
            self.again.clear()
        self.reset_at = now
        self.remembered.update(self.progress.done(), self.deleting.items())
        self.unsure = set(self.remembered)
        self.done_to = max((id for id, _ in self.remembered), default=0)
        self.again_to = max(self.again_to, self.cursor.last_id)
        self.again.update(self.taken, (row.id for chain in self.chains.values() for row in chain if row.loaded))
        self.again.update(self.deleting)
        for lane in self.lanes.values():
            old, lane.queue = lane.queue, deque()
            old.clear()
        self.lanes = {lane.key: lane for lane in self.lanes.values() if lane.running}
        self.draining = self.stopping = False

    def settle_remembered(self) -> None:
        """What was done before a lost connection, and waits for its lane's turn to be found so, is done."""
        if not self.remembered:
            return
        for event in [event for lane in self.lanes.values() for event in list(lane.queue)]:
            if event.identity in self.remembered:
                if event.parked is not None:
                    self.done_parked(event)
                else:
                    self.finish([event.identity])

    def _forget_passed(self, passed: int) -> None:
        """Nothing up to this id comes from the log again: what of it is remembered and not parked was saved before."""
        parked = self.taken.keys() | {row.id for chain in self.chains.values() for row in chain}
        saved = {pair for pair in self.unsure if pair[0] <= passed and pair[0] not in parked}
        self.unsure -= saved
        self.remembered -= saved

    def lose(self) -> None:
        """No longer mine: start nothing, save nothing."""
        self.lost = self.stopping = True
        self.weight = Weight()
        for lane in self.lanes.values():
            lane.queue.clear()

    def _take_back(self, stored: Stored, row: ParkedRow, key: Key) -> None:
        """It was charged before the connection was lost: the charge is taken back, and made again when it runs."""
        row.committed = False
        park = Park(
            self.number, row.id, stored.aggregate_type, stored.aggregate_id, "", "ready",
            blocks=True, attempts=row.attempts, new=False,
        )  # fmt: skip
        self.parks[row.id] = Pending(row, key, None, park)

    def _count_open(self, more: int) -> None:
        self.open_rows += more
        self.open_unsaved += more

    def _unpark(self, row: ParkedRow, key: Key) -> None:
        if row.blocks:
            chain = self.chains[key]
            chain.remove(row)
            chain.stuck = False
            if not chain.rows:
                del self.chains[key]

    def _send(
        self,
        event: DeliveredEvent,
        row: ParkedRow,
        key: Key,
        delay: float | None,
        new: bool,
        error: str | None = None,
        trace: str | None = None,
    ) -> None:
        before = self.parks.get(row.id)  # not sent yet: the two become one
        if before is not None:
            new = new or before.park.new
            if error is None:
                error, trace = before.park.error, before.park.trace
        park = Park(
            self.number,
            row.id,
            event.aggregate_type,
            event.aggregate_id,
            event.event_type,
            row.state,
            blocks=row.blocks,
            attempts=row.attempts,
            delay=delay,
            error=error,
            trace=trace,
            new=new,
        )
        self.parks[row.id] = Pending(row, key, delay, park)
