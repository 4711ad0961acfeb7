"""Publishers, a database, some processes; and what must never happen, looked at wherever it would.

`ran` are the numbers of events whose handler has said that they are done. Such an event does not begin again, unless it
is `excused`: a process that had not saved it died, say.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

from database import Database
from model_clock import ModelClock
from model_handlers import Handling, Shape
from model_tables import PartitionRow
from process import Process
from server_log import Logged
from statements import Fate, ModelConnection, Sent

from partbox.events import DeliveredEvent
from partbox.outcomes import Dead, RetryAfter
from partbox.protocol.horizon import Snapshot
from partbox.protocol.rows import CursorSave
from partbox.worker.engine.resumption import RECHECK_SECONDS

POISON = "Poison"
LEASE = 10.0
LARGE = 4_000  # bytes of a record in memory, whose payload is fetched by itself


class World:
    """Events are told apart by their numbers, which are never used again; ids and xids may be, after a crash."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: ModelClock, *, partitions: int = 2, first_xid: int = 5,
        wanted: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        self.loop, self.clock = loop, clock
        self.database = Database(clock, range(partitions), first_xid)
        self.database.saved = self._check_saved
        self.database.wanted = wanted
        self.filters = [wanted]  # all that there were: a process asks for it when its session begins
        self.processes: list[Process] = []
        self.ran: set[int] = set()
        self.excused: set[int] = set()
        self.out_of_line: set[int] = set()  # may be overtaken: delayed, dead, or replayed
        self.harmed: set[int] = set()  # innocents that had failed, or ran or were charged when their process died
        self.died: dict[int, int] = {}  # under which epoch an event was dead by the word of its handler
        self.effects: set[int] = set()
        self.told: set[int] = set()  # that the hook for dead events has had
        self.said: list[str] = []  # what handlers were given, for who reads along
        self._known: dict[int, Logged] = {}
        self._covered: dict[int, set[int]] = defaultdict(set)  # by partition: at some time by a saved cursor
        self._claimed: dict[int, tuple[UUID | None, int]] = {}  # by partition: its owner, and its session at the claim
        self._reconnected: dict[UUID, float] = {}  # the beginning of the last session
        self._names = 0
        self.has_crashed = False  # what is lost with its tail does not come again, and is remembered
        self.fails, self.lost = 0.1, 0.05  # of handlers, of statements

    # Publishers.

    def publish(self, slot: int, partition: int, key: str | None, kind: str = "Event", **more: Any) -> Logged:
        record = self.database.log.publish(self.database.transaction(slot), partition, key, kind, **more)
        self._known[record.number] = record
        if record.available_at is not None:
            self.out_of_line.add(record.number)
        return record

    def end(self, slot: int, *, commit: bool, durable: bool = True) -> None:
        self.database.log.end(self.database.transaction(slot), commit=commit)
        if commit and durable:
            self.database.flush()

    # Processes.

    def join(self, shape: Shape) -> Process:
        name = chr(ord("A") + self._names % 26)
        self._names += 1
        process = Process(self, self.database.register(), name, shape, self.loop)
        self.processes.append(process)
        return process

    def assign(self, numbers: Sequence[int], process: Process | None) -> None:
        self.database.plan(dict.fromkeys(numbers, None if process is None else process.me))

    def kill(self, process: Process) -> None:
        """It dies; its supervisor knows, and buries it."""
        self._forgive(process.me)
        running = (event for _, what in process.handling() if not what.letter for event in what.events)
        poisoned = any(event.event_type == POISON for event in running)
        if not poisoned:
            self._harm(process)
        process.kill()
        self.processes.remove(process)
        self.database.bury(process.me)

    def _harm(self, process: Process) -> None:
        """Its death is no fault of what runs there, or is charged already and about to."""
        owned = {row.partition for row in self.database.partitions.values() if row.owner == process.me}
        charged = (self.of(row.record_id) for row in self.database.of(owned) if row.started_at is not None)
        self.harmed |= {*process.running, *(record.number for record in charged if record is not None)}

    def expire(self, process: Process) -> None:
        """It stands still for longer than its lease, and is buried; it goes on, and does not know.

        A handler that is about to start does: from a look at the lease to that the margin of the lease suffices.
        """
        process.finish_steps()
        process.trust(ends=True)
        self.clock.now += LEASE
        self._harm(process)
        self._forgive(process.me)
        self.database.bury(process.me)

    def rename(self, process: Process) -> None:
        """Who was buried gets another identity."""
        process.rename(self.database.register())

    def leave(self, process: Process) -> None:
        """It has released everything and ends."""
        assert process.is_free, f"{process} is not free"
        process.kill()
        self.processes.remove(process)
        self.database.bury(process.me)

    def crash(self) -> None:
        """The server crashes, and loses what was not flushed."""
        before, self.has_crashed = self._saved(), True
        self.database.crash()
        self.excused |= before - self._saved()
        self.died.clear()  # an epoch may come again, and it is forgotten which rows were replayed: the rows tell

    def arrive(self) -> None:
        """What was sent on a lost connection gets there."""
        for run in self._arriving():
            run()

    def _arriving(self) -> list[Any]:
        arriving, self.database.arriving = self.database.arriving, []
        return arriving

    def committed(self, effects: list[DeliveredEvent]) -> None:
        """A transaction of handlers is committed, and its save with it: each has its effect once, whatever happens."""
        for each in map(number, effects):
            assert each not in self.effects, f"{self._known[each]} has its effect twice"
            self.effects.add(each)
            self.ran.add(each)
            self.excused.discard(each)

    def connection(self, process: Process) -> ModelConnection:
        return ModelConnection(self.database, self.committed)

    # What handlers do.

    def begins(self, process: Process, event: DeliveredEvent, before: Sequence[DeliveredEvent] = ()) -> None:
        record, mine = self._known[number(event)], process.running
        self.said.append(f"{process} begins {event.id}" + (f", attempt {event.attempt}" if event.attempt > 1 else ""))
        unwanted = all(map(record.is_left_out_by, self.filters))
        assert not unwanted, f"{record} begins, which is of a type that the subscription does not want"
        assert process.trusted, f"{record} begins after the lease of {process}"
        assert record.number not in mine, f"{record} begins in {process} while it runs there"
        again = record.number in self.ran and record.number not in self.excused
        assert not again, f"{record} begins again in {process}"
        assert not self._is_dead(record, event.epoch), f"{record} begins in {process}, and is dead"
        with_it = {number(each) for each in before}
        alive = {each.number for each in self.database.log.committed}
        for earlier in record.before if record.available_at is None else ():  # a delayed one has no place in the order
            ahead = earlier.number in alive and earlier.number not in with_it and not self._is_over(earlier, process)
            assert not ahead, f"{record} begins in {process} before {earlier} is over"
        mine[record.number] = process.me

    def ends(self, process: Process, event: DeliveredEvent, outcome: object) -> None:
        record = self._known[number(event)]
        identity = process.running.pop(record.number)
        if outcome is None:
            self.ran.add(record.number)
            self.excused.discard(record.number)
            if self.database.partitions[record.partition].owner != identity:
                self.excused.add(record.number)
        elif isinstance(outcome, Dead) or (
            isinstance(outcome, Exception) and event.attempt >= process.shape.max_attempts
        ):
            self.died[record.number] = event.epoch
            if process.shape.on_dead == "continue":
                self.out_of_line.add(record.number)
        elif isinstance(outcome, Exception):
            self.harmed.add(record.number)

    def letter_begins(self, process: Process, event: DeliveredEvent) -> None:
        """What the hook for dead events gets is owed to it, but for what a crash or a replay has changed meanwhile."""
        self.said.append(f"{process} tells of dead {event.id}")
        row = self.database.parked.get(event.id)
        owed = row is not None and row.state == "dead" and row.due_at is not None
        changed = self.database.incarnation > 1 or event.id in self.database.replayed
        assert owed or changed, f"{event.id} is told of as dead, and is not owed to the hook"

    def letter_ends(self, event: DeliveredEvent, outcome: object) -> None:
        if outcome is None:
            self.told.add(number(event))

    def filter(self, wanted: frozenset[str] | None) -> None:
        """From its next session on a process takes these types."""
        self.database.wanted = wanted
        self.filters.append(wanted)

    def may_be_passed(self, record: Logged) -> bool:
        """True if the record may be passed without a handler: some filter leaves it out."""
        return any(map(record.is_left_out_by, self.filters))

    def _is_dead(self, record: Logged, epoch: int) -> bool:
        """True if its row says so, or it died under this epoch (each reading has its own); and nobody replayed it."""
        row = self.database.parked.get(record.id)
        dead = self.died.get(record.number) == epoch or (row is not None and row.state == "dead")
        return dead and record.id not in self.database.replayed

    def _is_over(self, record: Logged, process: Process) -> bool:
        if self.may_be_passed(record) or record.number in self.ran or record.number in self.out_of_line:
            return True
        row = self.database.parked.get(record.id)
        # It has killed so many processes that it does not run again, though that is not saved yet.
        perished = row is not None and row.started_at is not None and row.attempts >= process.shape.max_attempts
        return perished and process.shape.on_dead == "continue"

    # What is saved.

    def _check_saved(self, savings: Sequence[CursorSave]) -> None:
        rows = {saving.partition: self.database.partitions[saving.partition] for saving in savings}
        snapshots = {number: Snapshot.parse(row.snapshot) for number, row in rows.items()}
        for record in self.database.log.alive():
            row = rows.get(record.partition)
            if row is not None and row.covers(record, snapshots[record.partition]):
                self._covered[record.partition].add(record.number)
                kept = record.id in self.database.parked or self.database.is_spilled(record)
                finished = record.number in self.ran or kept or self.may_be_passed(record)
                assert finished, f"{record} is saved as consumed, and it is neither done nor parked"
        for parked in self.database.parked.values():
            if parked.state == "dead" and (known := self.of(parked.record_id)) is not None:
                self._check_death(known, parked.last_error)
        for saving in savings:
            if saving.is_release:
                self._check_release(rows[saving.partition])

    def _check_death(self, record: Logged, error: str | None) -> None:
        if all(each.shape.on_dead == "continue" for each in self.processes):
            self.out_of_line.add(record.number)
        perished = error is not None and "the process died" in error
        innocent = record.type != POISON and record.number not in self.harmed
        assert not (perished and innocent), f"{record} is dead, and has killed nobody"

    def _check_release(self, row: PartitionRow) -> None:
        """What was done before a lost connection and is not found again in time runs again at the next owner."""
        owner, session = self._claimed.get(row.partition, (None, 0))
        process = next((each for each in self.processes if each.me == owner), None)
        if process is not None and process.claims > session:
            unsaved, late = self._unsaved(row), self.clock.now > self._reconnected[process.me] + RECHECK_SECONDS
            parked = {each.number for each in map(self.of, self.database.parked) if each is not None}
            self.excused |= unsaved if late else unsaved & parked

    def claimed(self, partition: int, process: Process) -> None:
        self._claimed[partition] = process.me, process.claims

    def of(self, record_id: int) -> Logged | None:
        return next((each for each in self.database.log.committed if each.id == record_id), None)

    def _saved(self) -> set[int]:
        """The events that run and are done by the database's word."""
        rows = self.database.partitions
        return self.ran - set().union(*map(self._unsaved, rows.values()))

    def _unsaved(self, row: PartitionRow) -> set[int]:
        """Those that are done, and an heir who knows only what is saved gets them again."""
        snapshot, found = Snapshot.parse(row.snapshot), set()
        for record in self.database.log.alive():
            if record.partition == row.partition and record.number in self.ran:
                parked = self.database.parked.get(record.id)
                if parked is not None or not row.covers(record, snapshot):
                    found.add(record.number)
        return found

    def _forgive(self, me: UUID) -> None:
        for row in self.database.partitions.values():
            if row.owner == me:
                self.excused |= self._unsaved(row)

    def reconnected(self, process: Process) -> None:
        """The snapshot of a saved cursor may be older than the one saved before it: see Progress."""
        for row in self.database.partitions.values():
            if row.owner == process.me:
                self.excused |= self._unsaved(row) & self._covered[row.partition]

    # Steps.

    def step(self, process: Process, actor: str, random: Random, *, through: bool) -> None:
        """An actor goes on. A handler ends some way or other, or kills its process."""
        subject = process.subject(actor)
        between = None if through else random.randrange(8)
        if isinstance(subject, Handling):
            self.finish(process, actor, subject, random, between=between)
            return
        self.go_on(process, actor, self._fate(subject, random), through=False, between=between)
        while through and isinstance(subject := process.subject(actor), Sent):
            self.go_on(process, actor, self._fate(subject, random), through=False)

    def _fate(self, subject: object, random: Random) -> Fate | None:
        """What becomes of a statement, or of its answer; most get through."""
        if not isinstance(subject, Sent) or random.random() >= self.lost:
            return None
        return random.choice([Fate.LOST, Fate.LOST, Fate.LATE, Fate.REFUSED])

    def go_on(
        self,
        process: Process,
        actor: str,
        fate: Fate | None = None,
        *,
        through: bool = True,
        between: int | str | None = None,
    ) -> Any:
        before = process.claims
        result = process.go_on(actor, fate, through=through, between=between)
        if process.claims > before:
            self._reconnected[process.me] = self.clock.now
            self.reconnected(process)
        for number, partition in process.engine.partitions.items():
            if self._claimed.get(number, (None, 0))[0] != process.me and not partition.is_lost:
                self.claimed(number, process)
        if actor == "poller":
            self._check_room(process)
        return result

    def _check_room(self, process: Process) -> None:
        """A process holds no more than its settings let it, and one payload: small ones come whatever their number."""
        shape, partitions = process.shape, process.engine.partitions
        for number, partition in partitions.items():
            unsaved = partition.progress.count_unsaved()
            # The last record that a filter left out counts as read, too.
            most = shape.window + any(each is not None for each in self.filters)
            assert unsaved <= most, f"{process} holds {unsaved} records of partition {number}"
        large = sum(size > LARGE for each in partitions.values() for size in each.payload_bytes.sizes.values())
        assert large <= shape.window_bytes // LARGE + 1, f"{process} holds {large} payloads of {LARGE} bytes"

    def finish(
        self, process: Process, where: Any, handling: Handling, random: Random | None = None, *,
        between: int | str | None = None,
    ) -> None:  # fmt: skip
        """A handler ends; of poison its process dies."""
        if not handling.letter and any(event.event_type == POISON for event in handling.events):
            self.kill(process)
            return
        process.finish(where, [self._outcome(random) for _ in handling.events], between=between)

    def _outcome(self, random: Random | None) -> object:
        if random is None or random.random() >= self.fails:
            return None
        return random.choice([ValueError("no"), ValueError("no"), RetryAfter(0.5), Dead("over"), Dead("over")])


def number(event: DeliveredEvent) -> int:
    return int.from_bytes(event.record[2])
