"""One process that reads the log of `log_model`, as a worker does: with the rules, without threads and SQL.

It does what `worker/poller` and `worker/saver` do with Horizon, Cursor and Progress. Checked at each step: nothing is
handed over twice within a life of the process, what was published before is handed over before, no saved cursor covers
what is not finished.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from log_model import Log, Record, Transaction, visible

from partbox.protocol import quick_poll as quick
from partbox.protocol.cursor import Cursor
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.protocol.progress import Progress, Target
from partbox.protocol.sweep import brief, sweep

PARTITIONS = range(2)
WIDEST = 5  # the room of a partition that takes part in a sweep
KEYS = {partition: [f"{partition}a", f"{partition}b"] for partition in PARTITIONS}
Doing = tuple[str, int, int, int]
"""The deed of a publisher, the slot of its transaction, the partition, the key."""


@dataclass
class Saved:
    """A row of `partition`, and the rows of `parked` that belong to it."""

    snapshot: str = "1:1:"
    last_id: int = 0
    floor: int = 0
    parked: set[int] = field(default_factory=set)
    covered: set[int] = field(default_factory=set)  # at some time by a saved cursor


@dataclass
class Batch:
    target: Target
    parks: set[int]
    release: bool


class Held:
    """A partition in the memory of its owner."""

    def __init__(self, number: int, saved: Saved) -> None:
        self.number = number
        self.remembered: set[tuple[int, bytes]] = set()
        self.draining = False
        self.begin(saved)

    def begin(self, saved: Saved) -> None:
        page = Page(saved.snapshot, saved.floor)
        self.cursor = Cursor(self.number, saved.last_id, page)
        self.progress = Progress(page, saved.last_id)
        self.ahead = {id for id in saved.parked if id > min(saved.floor, saved.last_id)}
        self.waiting: dict[int, Record] = {}
        self.parks: set[int] = set()
        self.batch: Batch | None = None

    def reset(self, saved: Saved) -> None:
        """After a lost connection."""
        self.remembered.update(self.progress.done())
        self.begin(saved)

    def park(self, id: int) -> None:
        del self.waiting[id]
        self.parks.add(id)
        self.progress.finish([(id, b"")])

    def gather(self) -> Batch:
        release = self.draining and self.cursor.cut is None
        if release:
            last_id = self.progress.released().last_id
            for id in self.progress.unfinished():
                if id <= last_id:
                    self.park(id)
        batch = Batch(self.progress.released() if release else self.progress.target(), self.parks, release)
        self.parks = set()
        return batch


class WorkerModel:
    """Publishers, a process, and what is saved of each partition; it may die and lose its connection at any time."""

    def begin(self, first_xid: int, claimed: set[int]) -> None:
        self.log = Log(first_xid)
        self.saved = {number: Saved() for number in PARTITIONS}
        self.ran: set[int] = set()
        self.again: set[int] = set()  # ran, and unsaved when the process was killed: may run once more
        self.born()
        for number in claimed:
            self.claim(number)

    def born(self) -> None:
        self.horizon = Horizon()
        self.held: dict[int, Held] = {}
        self.passed: dict[int, set[int]] = defaultdict(set)  # what may not be handed over any more in this life

    # Publishers.

    def publish(self, what: list[Doing]) -> None:
        for each in what:
            self.do(each)

    def do(self, what: Doing) -> None:
        kind, slot, partition, key = what
        transaction = self.transaction(slot)
        match kind:
            case "publish":
                self.log.publish(transaction, partition, KEYS[partition][key])
            case "xid":
                self.log.draw_xid(transaction)
            case "savepoint":
                transaction.marks.append(len(transaction.records))
            case "undo":
                self.log.roll_back_to_savepoint(transaction)
            case _:
                self.log.end(transaction, commit=kind == "commit")

    def transaction(self, slot: int) -> Transaction:
        while len(self.log.open) <= slot:
            self.log.begin()
        return self.log.open[slot]

    # The reader.

    def read_step(
        self, rooms: tuple[int, ...], backlog: bool, in_look: list[Doing], after_look: list[Doing], quickly: bool = True
    ) -> None:
        """`quickly`: by a quick poll, if that is of use; those that are behind wait then."""
        fresh = [held for held in self.readable() if held.cursor.fresh]
        together = [held for held in self.readable() if not held.cursor.fresh]
        if quickly and not fresh and self.read_quickly(together, rooms, in_look, after_look):
            return
        if fresh:
            self.read(fresh, rooms, True, backlog, in_look, after_look)
        if together:
            self.read(together, rooms, False, backlog, in_look, after_look)

    def read_quickly(
        self, together: list[Held], rooms: tuple[int, ...], in_poll: list[Doing], after_poll: list[Doing]
    ) -> bool:
        """False if nothing has moved: nobody is caught up, or the page does not count.

        The parts of the statement come in this order: its snapshot and rows, the ids drawn, the next transaction id.
        """
        caught_up = {held.number: held for held in together if held.cursor.caught_up}
        horizon, shared = self.horizon, self.horizon.shared
        if not caught_up or shared is None:
            return False
        for held in together:
            if not held.cursor.caught_up:
                held.cursor.stay(shared)
        text, floor, rows = self.log.quick(shared, caught_up)
        self.publish(in_poll)
        drawn = self.log.drawn
        self.publish(after_poll)
        made = self.log.fence(drawn)
        found: dict[int, list[Record]] = defaultdict(list)
        for row in rows:
            found[row.partition].append(row)
        if not quick.counts(len(rows), floor, drawn) or any(
            sum(each.id > caught_up[number].cursor.last_id for each in its) > rooms[number]
            for number, its in found.items()
        ):
            return False
        horizon.learn(made)
        snapshot = Snapshot.parse(text)
        page = horizon.page_of(snapshot, whole=True)
        horizon.advance(snapshot, page)
        for number, its in found.items():
            self.follow(caught_up[number], page, its)
        return True

    def look(self, in_look: list[Doing]) -> None:
        """An idle check: if it says that nothing is unread, nothing is of those that are caught up.

        Its parts come in this order: its snapshot, the ids drawn, the next transaction id.
        """
        horizon, shared = self.horizon, self.horizon.shared
        caught_up = {held.number: held for held in self.readable() if held.cursor.caught_up}
        unread = self.log.quick(shared, caught_up)[2] if shared is not None else []
        ended, drawn = any(self.log.ended(horizon.listed())), self.log.drawn
        self.publish(in_look)
        horizon.learn(self.log.fence(drawn))
        assert not (unread and horizon.still(drawn, ended)), f"{unread} is left unread"

    def follow(self, held: Held, page: Page, rows: list[Record]) -> None:
        reading = held.cursor.take_quick(page, [row.id for row in rows])
        held.progress.take_page(reading.page, reading.late, reading.new, reading.raised)
        for row in rows:
            self.hand_over(held, row)

    def let_follow(self) -> None:
        """Those that are caught up move to the shared page, which has brought nothing of theirs."""
        for held in self.readable():
            if held.cursor.caught_up and self.horizon.shared is not None:
                self.follow(held, self.horizon.shared, [])

    def readable(self) -> list[Held]:
        return [held for held in self.held.values() if not held.draining or held.cursor.cut is not None]

    def read(
        self,
        partitions: list[Held],
        rooms: tuple[int, ...],
        alone: bool,
        backlog: bool,
        in_look: list[Doing],
        after_look: list[Doing],
    ) -> bool:
        """False if the idle rule said that there is nothing."""
        horizon = self.horizon
        room = {held.number: 0 if held.draining else rooms[held.number] for held in partitions}
        if alone or not (backlog and any(held.cursor.full and room[held.number] for held in partitions)):
            drawn = self.log.drawn
            self.publish(in_look)
            horizon.learn(self.log.fence(drawn))
            if (
                not alone
                and horizon.still(drawn, any(self.log.ended(horizon.listed())))
                and all(held.cursor.lockstep and not (held.cursor.full and room[held.number]) for held in partitions)
            ):
                return False
        self.publish(after_look)
        shared = None if alone else horizon.shared
        asks = [held.cursor.ask(room[held.number], shared) for held in partitions]
        hi = horizon.ceiling(max(ask.last_id for ask in asks))
        behind = [ask for held, ask in zip(partitions, asks, strict=True) if held.cursor.full]
        swept = brief(asks, hi)
        if swept is None and not alone and (swept := sweep(behind, hi)) is not None:
            asks = [ask._replace(room=swept.room(ask, WIDEST)) for ask in asks]
        text, floors, found = self.log.poll(
            asks,
            lo=min(held.cursor.start(ask.base.floor) for held, ask in zip(partitions, asks, strict=True)),
            hi=hi,
            swept=swept,
        )
        brought = sum(len(new) for _, new in found.values())
        cut = swept.last_ids if swept is not None and swept.is_cut(brought, hi) else ()
        snapshot = Snapshot.parse(text)
        page = horizon.page_of(snapshot, whole=hi >= self.log.drawn)
        for held, ask, floor in zip(partitions, asks, floors, strict=True):
            late, new = found[held.number]
            new = new[: ask.room]
            if held.number in cut:
                ask = ask._replace(room=len(new))  # noqa: PLW2901
            records = {record.id: record for record in (*late, *new)}
            ids = [r.id for r in late], [r.id for r in new]
            reading = held.cursor.take(ask, page, floor, *ids, together=not alone)
            if reading.piece:
                held.progress.take_piece(reading.page, reading.late, reading.last)
            else:
                held.progress.take_page(reading.page, reading.late, reading.new, reading.raised)
            for id in sorted((*reading.late, *reading.new)):
                self.hand_over(held, records[id])
        if not alone:
            horizon.advance(snapshot, page)
        return True

    def hand_over(self, held: Held, record: Record) -> None:
        pair = (record.id, record.event_id)
        if record.id in held.ahead:
            held.ahead.discard(record.id)
            held.progress.finish([(record.id, b"")])
            return
        if pair in held.remembered:
            held.remembered.discard(pair)
            held.progress.finish([pair])
            return
        assert record.id not in self.ran or record.id in self.again, f"{record.id} is handed over again"
        assert record.id not in held.waiting, f"{record.id} is handed over while it waits"
        assert record.id not in self.passed[held.number], f"{record.id} comes too late"
        if not held.draining:
            self.passed[held.number] |= record.before
        held.waiting[record.id] = record
        if held.draining:
            held.park(record.id)

    # Handlers.

    def finish(self, pick: int, park: bool) -> None:
        """The first event of some key is done, or parked."""
        heads = {
            (held.number, record.key): (held, record)
            for held in self.held.values()
            if not held.draining
            for record in reversed(held.waiting.values())
        }
        if not heads:
            return
        held, record = list(heads.values())[pick % len(heads)]
        if park:
            held.park(record.id)
            return
        assert record.id not in self.ran or record.id in self.again, f"{record.id} ran twice"
        self.ran.add(record.id)
        self.again.discard(record.id)
        del held.waiting[record.id]
        held.progress.finish([(record.id, record.event_id)])

    # The saver.

    def begin_save(self, number: int) -> None:
        held = self.held.get(number)
        if held is not None and held.batch is None:
            held.batch = held.gather()

    def end_save(self, number: int) -> None:
        held = self.held.get(number)
        if held is not None and held.batch is not None:
            self.commit(held, held.batch)
            held.progress.saved(held.batch.target)
            if held.batch.release:
                del self.held[number]
                self.again |= {id for id, _ in held.remembered}  # a reconnect on the way out: at least once
                self.passed[number].clear()
            held.batch = None

    def commit(self, held: Held, batch: Batch) -> None:
        saved, target = self.saved[held.number], batch.target
        saved.snapshot, saved.last_id, saved.floor = target.page.snapshot, target.last_id, target.page.floor
        saved.parked |= batch.parks
        self.check_saved(held.number)

    def check_saved(self, number: int) -> None:
        saved = self.saved[number]
        for record in self.log.alive():
            if record.partition == number and self.covers(saved, record):
                saved.covered.add(record.id)
                assert record.id in self.ran or record.id in saved.parked, f"{record.id} is saved and not finished"

    @staticmethod
    def covers(saved: Saved, record: Record) -> bool:
        known = record.id <= saved.floor or visible(record.xid, saved.snapshot)
        return record.id <= saved.last_id and known

    # Ownership.

    def claim(self, number: int) -> None:
        if number not in self.held:
            self.held[number] = Held(number, self.saved[number])
            self.horizon.claim(self.saved[number].floor)

    def drain(self, numbers: set[int]) -> None:
        """These partitions are to be released."""
        for held in self.held.values():
            held.draining = held.draining or held.number in numbers

    def kill(self, committed: bool, restart: set[int]) -> None:
        """The process dies; the save in hand may have come through. Another one takes over what it finds saved."""
        self.cut(committed)
        for number in PARTITIONS:
            self.again |= self.unsaved(number)
        self.born()
        for number in restart:
            self.claim(number)

    def unsaved(self, number: int) -> set[int]:
        """Records that ran, and will be read again by an heir, who knows only what is saved."""
        saved = self.saved[number]
        mine = {record.id: record for record in self.log.alive() if record.partition == number}
        return {id for id in self.ran & mine.keys() if not self.covers(saved, mine[id]) and id not in saved.parked}

    def reconnect(self, committed: bool) -> None:
        """The connection is lost, the process goes on from what is saved, and starts nothing twice."""
        self.cut(committed)
        self.horizon = Horizon()
        for number, held in list(self.held.items()):
            if held.batch is not None and held.batch.release and committed:
                del self.held[number]
                self.again |= {id for id, _ in held.remembered}
            else:
                held.reset(self.saved[number])
                # The snapshot of a saved cursor may be older than the one saved before it: see Progress.
                self.again |= self.unsaved(number) & self.saved[number].covered
            self.horizon.claim(self.saved[number].floor)
        self.passed.clear()

    def cut(self, committed: bool) -> None:
        for held in self.held.values():
            if held.batch is not None and committed:
                self.commit(held, held.batch)
