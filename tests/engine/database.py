"""What the database answers to a worker, in memory and exactly: its tables, and the functions that write to them.

The log is in `server_log`, the spills are in `model_spills`, and the statements as a worker sends them, with what may
happen on the way, in `statements`. Each method here is one function or statement of `sql/`, and says the same.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from uuid import UUID

from model_clock import ModelClock
from model_rows import floor_at, read_partition, summarise_loose
from model_spills import SpillTable
from model_tables import ParkedLine, PartitionRow
from server_log import Logged, Publishing, ServerLog, ended, sees

from partbox.db.delivery.cursors import TickResult
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.delivery.records import PolledPage, QuickPage
from partbox.events.record import CONTENT_TYPE, EVENT_TYPE, HEADERS, PAYLOAD, PageStats, Row, count_row_bytes
from partbox.protocol import cursor as cursor_rules
from partbox.protocol import quick_poll
from partbox.protocol.cursor import LateLimits, ReadRequest
from partbox.protocol.horizon import Page, Snapshot, build_fence
from partbox.protocol.limit_addresses import LimitAddress
from partbox.protocol.rows import (
    CursorSave,
    LooseRows,
    OwnedPartition,
    ParkedSave,
    SaveEntry,
    SpillStart,
    StoredRow,
    TickPartition,
)
from partbox.protocol.sweep import Sweep

Pair = tuple[int, int]
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def light(row: Row, types: Collection[str] | None) -> Row:
    """The row of a page, without payload and headers if its type is none of `types`."""
    if types is None or row[EVENT_TYPE] is None or row[EVENT_TYPE] in types:
        return row
    return (*row[:PAYLOAD], b"null", None, row[CONTENT_TYPE], None, *row[HEADERS + 1 :])


class Database(SpillTable):
    """One server. `saved` is called after each save, with the partitions of which it says something."""

    replayed: frozenset[int] = frozenset()  # ids of rows that were dead
    wanted: frozenset[str] | None = None  # event types; None: all

    def __init__(self, clock: ModelClock, partitions: Iterable[int], first_xid: int) -> None:
        self.clock = clock
        self.log = ServerLog(first_xid)
        self.partitions = {number: PartitionRow(number) for number in partitions}
        self.parked = {}
        self.spills = {}
        self.instances: dict[UUID, bool] = {}  # whether it is draining
        self.paused: set[LimitAddress] = set()  # by an operator
        self.incarnation = 1
        self.meddling: list[
            Callable[[], None]
        ] = []  # what others do between two parts of a statement, one for each gap
        self.arriving: list[Callable[[], object]] = []  # sent on connections that are lost, and not there yet
        self.saved: Callable[[Sequence[CursorSave]], None] = lambda _: None
        self._joined = 0
        self.flush()

    # Crashes.

    def flush(self) -> None:
        """All that is committed by now survives a crash."""
        log = self.log
        self._durable = (
            (log.next_xid, log.drawn, list(log.committed)),
            {number: copy(row) for number, row in self.partitions.items()},
            {id: copy(row) for id, row in self.parked.items()},
            dict(self.spills),
            dict(self.instances),
        )

    def crash(self) -> None:
        """All connections are lost, and what was committed since the last flush: ids and xids are given out again."""
        log, (began, self.partitions, self.parked, self.spills, self.instances) = self.log, self._durable
        log.next_xid, log.drawn, log.committed = began
        log.completed, log.open = log.next_xid - 1, []
        self.incarnation += 1
        self.meddling.clear()
        self.arriving.clear()
        self.replayed = frozenset()
        self.clock.now += 0.1
        self.flush()

    # Membership: what supervisors write.

    def register(self) -> UUID:
        self._joined += 1
        instance = UUID(int=self._joined)
        self.instances[instance] = False
        self.flush()
        return instance

    def plan(self, assignees: Mapping[int, UUID | None]) -> None:
        for number, assignee in assignees.items():
            self.partitions[number].assignee = assignee
        self.flush()

    def leave(self, me: UUID) -> None:
        if me in self.instances:
            self.instances[me] = True

    def bury(self, victim: UUID) -> None:
        drained = self.instances.pop(victim, False)
        for row in self.partitions.values():
            if row.owner is None or row.owner in self.instances:
                continue
            left = drained and row.owner == victim
            if left:
                for parked in self.parked.values():
                    if parked.partition == row.partition and (parked.started_at or -1.0) >= row.claimed_at:
                        parked.attempts, parked.started_at = parked.attempts - 1, None
            else:
                row.suspect_until_id = self.log.drawn
            row.owner = None
        self.flush()

    # Commands.

    def replay(self, ids: Collection[int]) -> None:
        for row in [self.parked[id] for id in sorted(ids)]:
            if row.state == "dead":
                self.replayed |= {row.record_id}
                row.state, row.blocks, row.attempts = "ready", row.aggregate_id is not None, 0
                row.due_at, row.started_at = None if row.blocks else self.clock.now, None
                self.partitions[row.partition].parked_version += 1
        self.flush()

    def retry_now(self, id: int) -> None:
        """The head of a blocked key is due now."""
        row = self.parked[id]
        if row.state == "dead":
            self.replay([id])
        elif row.state in ("retrying", "deferred"):
            row.due_at = self.clock.now
            self.partitions[row.partition].parked_version += 1
            self.flush()

    # Claims.

    def mine(self, me: UUID) -> list[TickPartition]:
        rows = [row for row in self.partitions.values() if me in (row.assignee, row.owner)]
        return [
            TickPartition(
                row.partition, row.assignee == me, row.owner == me, row.owner is None, row.epoch, row.parked_version
            )
            for row in rows
        ]

    def tick(self, me: UUID, listed: Sequence[int], known: int | None) -> TickResult:
        look, rows = self.look(listed), self.mine(me)
        digest = self.digest(rows)
        dues: dict[int, float] = {}
        for parked in self.parked.values():
            if parked.due_at is not None and self.partitions[parked.partition].owner == me:
                left = parked.due_at - self.clock.now
                dues[parked.partition] = min(left, dues.get(parked.partition, left))
        is_known = digest is not None and digest == known
        return TickResult(look, digest, None if is_known else rows, dues, dict.fromkeys(self.paused, (0.0, None)))

    def digest(self, rows: Sequence[TickPartition]) -> int | None:
        return hash((tuple(rows), frozenset(self.paused))) if rows else None

    def calm(self, me: UUID, known: int, before: IdleCheck) -> IdleCheck | None:
        rows = self.mine(me)
        if self.log.drawn != before.fence.drawn_id or not rows or self.digest(rows) != known:
            return None
        if any(row.due_at is not None for row in self.parked.values()):
            return None
        return before._replace(has_ended=False)

    def claim(self, me: UUID) -> list[OwnedPartition]:
        if me not in self.instances:
            return []
        free = [row for row in self.partitions.values() if row.assignee == me and row.owner is None]
        for row in free:
            row.owner, row.claimed_at = me, self.clock.now
        return self._taken(free)

    def take_up(self, me: UUID, epochs: Mapping[int, int]) -> list[OwnedPartition]:
        held = [row for row in self.partitions.values() if row.owner == me]
        return self._taken([row for row in held if epochs.get(row.partition) == row.epoch])

    def _taken(self, rows: Sequence[PartitionRow]) -> list[OwnedPartition]:
        for row in rows:
            row.epoch = max(row.epoch + 1, int(self.clock.now * 1000))
        self.flush()
        return [
            OwnedPartition(
                row.partition, row.epoch, row.snapshot, row.last_id, row.floor_id, row.parked_version,
                row.suspect_until_id,
            )
            for row in rows
        ]  # fmt: skip

    # Saves.

    def owned(self, me: UUID, savings: Sequence[CursorSave]) -> set[int]:
        """Those of them that are mine, under their epochs."""
        rows = [(saving, self.partitions[saving.partition]) for saving in savings]
        return {row.partition for saving, row in rows if row.owner == me and row.epoch == saving.epoch}

    def save(
        self,
        me: UUID,
        savings: Sequence[CursorSave],
        parks: Sequence[SaveEntry],
        done_ids: Sequence[int],
        *,
        durable: bool,
    ) -> set[int]:
        """The partitions that are still mine. If they are not all, nothing is written."""
        mine = self.owned(me, savings)
        if len(mine) < len(savings):
            return mine
        for saving in savings:
            self._move(self.partitions[saving.partition], saving)
        for park in [each for each in parks if isinstance(each, ParkedSave)]:
            self._park(park)
        for start in [each for each in parks if isinstance(each, SpillStart)]:
            key = start.partition, start.aggregate_type, start.aggregate_id
            assert key not in self.spills, f"{key} is spilled twice"
            self.spills[key] = start.from_id
        for id in done_ids:
            self.parked.pop(id, None)
        self.saved(savings)
        if durable:
            self.flush()
        return mine

    def _move(self, row: PartitionRow, saving: CursorSave) -> None:
        if saving.snapshot is not None:
            row.snapshot = saving.snapshot
        row.last_id = row.last_id if saving.last_id is None else saving.last_id
        row.floor_id = row.floor_id if saving.floor_id is None else saving.floor_id
        if (row.suspect_until_id or 0) <= row.last_id:
            row.suspect_until_id = None
        if saving.is_release:
            row.owner = None

    def _park(self, park: ParkedSave) -> None:
        due = self.clock.now + park.delay if park.delay is not None else None
        if park.due is not None:
            due = (datetime.fromisoformat(park.due) - EPOCH).total_seconds()
        if park.is_new:
            line = ParkedLine(
                park.record_id, park.partition, park.aggregate_type, park.aggregate_id, park.state, park.blocks,
                park.attempts, due, last_error=park.error,
            )  # fmt: skip
            self.parked.setdefault(park.record_id, line)
            return
        row = self.parked.get(park.record_id)
        if row is None or (park.is_dead_letter and row.state != "dead"):
            return
        if not park.is_dead_letter:
            row.blocks, row.attempts = park.blocks, park.attempts
        row.state, row.due_at, row.started_at = park.state, due, self.clock.now if park.is_charge else None
        row.last_error = (park.is_wait and row.last_error) or park.error or row.last_error

    # Parked rows.

    def of(self, numbers: Collection[int]) -> list[ParkedLine]:
        """The parked rows of these partitions, by id."""
        return sorted((row for row in self.parked.values() if row.partition in numbers), key=lambda row: row.record_id)

    def blocking(self, numbers: Collection[int]) -> list[StoredRow]:
        return [self._stored(row, blocks=True) for row in self.of(numbers) if row.blocks]

    def ahead(self, numbers: Collection[int]) -> list[tuple[int, int]]:
        at = {number: min(self.partitions[number].floor_id, self.partitions[number].last_id) for number in numbers}
        return [(row.partition, row.record_id) for row in self.of(numbers) if row.record_id > at[row.partition]]

    def loose_rows(self, numbers: Collection[int]) -> dict[int, LooseRows]:
        rows: dict[int, list[ParkedLine]] = defaultdict(list)
        for row in self.of(numbers):
            if not row.blocks and row.state != "dead":
                rows[row.partition].append(row)
        return {number: summarise_loose(some) for number, some in rows.items()}

    def due(
        self,
        numbers: Collection[int],
        taken: Collection[int],
        early: Collection[int],
        room: int,
        share: int,
        letters: int,
    ) -> list[StoredRow]:
        found = [row for row in self.of(numbers) if row.due_at is not None and row.record_id not in taken]
        due = [row for row in found if (row.due_at or 0.0) <= self.clock.now]
        loose = [row for row in found if not row.blocks and row.state != "dead"]
        first = [row for row in loose if row.record_id in early and row.state == "deferred"]
        longest = sorted((row for row in loose if row in due and row not in first), key=lambda row: row.due_at or 0.0)
        behind = [row for number in numbers for row in [each for each in longest if each.partition == number][:share]]
        others = first[:room] + sorted(behind, key=lambda row: row.record_id)[: max(0, room - len(early))]
        dead = sorted((row for row in due if row.state == "dead"), key=lambda row: row.due_at or 0.0)
        return [self._stored(row, blocks=False) for row in (*others, *dead[:letters])]

    def _stored(self, row: ParkedLine, *, blocks: bool) -> StoredRow:
        left = row.due_at - self.clock.now if row.due_at is not None else None
        left = 0.0 if blocks and row.waits_for_turn else left
        error = row.last_error if (row.waits_for_turn if blocks else row.state == "dead") else None
        started = row.started_at is not None
        return StoredRow(
            row.partition, row.record_id, row.aggregate_type, row.aggregate_id, row.state, row.attempts, left, started,
            error, row.waits,
        )  # fmt: skip

    # The log.

    def gap(self) -> None:
        """What others do between two parts of a statement."""
        if self.meddling:
            self.meddling.pop(0)()

    def look(self, listed: Sequence[int]) -> IdleCheck:
        """Its parts come in this order: its snapshot, the ids drawn, the next transaction id."""
        snapshot = self.log.snapshot()
        self.gap()
        drawn = self.log.drawn
        self.gap()
        return IdleCheck(build_fence(drawn, self.log.age(), snapshot.xmax), any(ended(snapshot, listed)), 0.0)

    def still(self, drawn: int) -> bool:
        return self.log.drawn == drawn

    def poll(
        self,
        asks: Sequence[ReadRequest],
        shared: Page | None,
        *,
        lo: int,
        hi: int,
        limits: LateLimits,
        sweep: Sweep | None,
        types: Collection[str] | None,
    ) -> PolledPage:
        snapshot, rows = self.log.snapshot(), self.log.in_order(lo, hi)
        floors = {ask.base_page: floor_at(ask.base_page, snapshot) for ask in asks}
        rooms = [ask.room for ask in asks] if sweep is None else sweep.compute_rooms_beside(asks)
        found = [
            row
            for ask, room in zip(asks, rooms, strict=True)
            for row in read_partition(ask._replace(room=room), floors[ask.base_page], rows, limits)
        ]
        if sweep is not None:
            swept = (row for row in rows if sweep.start < row.id <= sweep.end and row.partition in sweep.last_ids)
            found += [row for row in swept if row.id > sweep.last_ids[row.partition]][: sweep.max_records]
        self.gap()
        drawn, text = self.log.drawn, [light(row.row(), types) for row in found]
        return PolledPage(
            snapshot.text, [floors[ask.base_page] for ask in asks], text, self._micros(), drawn, PageStats(text)
        )

    def quick(self, shared: Page, bits: str, types: Collection[str] | None) -> QuickPage:
        """Its ceiling is all that is drawn, within the range of ids that it is planned for."""
        snapshot, since = self.log.snapshot(), Snapshot.parse(shared.snapshot)
        seen = list(self.log.committed)
        self.gap()
        drawn = self.log.drawn
        self.gap()
        floor, made = floor_at(shared, snapshot), build_fence(drawn, self.log.age(), snapshot.xmax)
        above, end = quick_poll.compute_id_range(shared)
        rows = sorted((row for row in seen if max(floor, above) < row.id < min(drawn + 1, end)), key=lambda row: row.id)
        unseen = [row for row in rows if bits[row.partition] == "1" and not sees(since, row.xid)]
        found = [light(row.row(), types) for row in unseen[: cursor_rules.MAX_LATE + 1]]
        return QuickPage(snapshot.text, made, floor, found, self._micros(), 0.0, PageStats(found))

    def records(self, wanted: Collection[Pair]) -> dict[Pair, Logged]:
        return {(row.partition, row.id): row for row in self.log.committed if (row.partition, row.id) in wanted}

    def bodies(self, wanted: Collection[Pair]) -> list[Row]:
        return [(*row.row(), False) for row in sorted(self.records(wanted).values(), key=lambda row: row.id)]

    def payloads(self, wanted: Collection[Pair], most: int) -> dict[Pair, Row | None]:
        found, got, bytes = self.records(wanted), dict[Pair, Row | None](), 0
        for pair in wanted:
            if bytes >= most:
                break
            got[pair] = found[pair].row(whole=True) if pair in found else None
            bytes += count_row_bytes(got[pair] or (None,) * 14)
        return got

    def transaction(self, slot: int) -> Publishing:
        """The publisher's transaction in this slot, which begins now if there is none."""
        while len(self.log.open) <= slot:
            self.log.begin()
        return self.log.open[slot]

    def _micros(self) -> int:
        return round(self.clock.now * 1e6)
