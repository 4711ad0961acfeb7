"""PostgreSQL as the cursor sees it: transaction ids, snapshots, a sequence, a log, and the statements that read it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from partbox.protocol import cursor as cursor_rules
from partbox.protocol.cursor import Ask
from partbox.protocol.horizon import Fence, Page, Snapshot, fence
from partbox.protocol.sweep import Sweep


@dataclass(eq=False)
class Transaction:
    """In progress; `xid` None until it writes. `marks` are the savepoints: how many records it had then."""

    xid: int | None = None
    records: list["Record"] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Record:
    """`before`: the ids of its key that were published before it in the sense of the order guarantee."""

    id: int
    xid: int
    partition: int
    key: str
    before: frozenset[int]

    @property
    def event_id(self) -> bytes:
        return b"event %d" % self.id


def visible(xid: int, text: str) -> bool:
    """`pg_visible_in_snapshot`."""
    snapshot = Snapshot.parse(text)
    return xid < snapshot.xmax and xid not in snapshot.xip


class Log:
    """One server. A snapshot lists the running transactions below its xmax only: those above it are not in it."""

    def __init__(self, first_xid: int) -> None:
        self.next_xid = first_xid
        self.completed = first_xid - 1
        self.drawn = 0
        self.open: list[Transaction] = []
        self.committed: list[Record] = []

    # Publishers.

    def begin(self) -> Transaction:
        self.open.append(Transaction())
        return self.open[-1]

    def draw_xid(self, transaction: Transaction) -> int:
        if transaction.xid is None:
            transaction.xid, self.next_xid = self.next_xid, self.next_xid + 1
        return transaction.xid

    def publish(self, transaction: Transaction, partition: int, key: str) -> Record:
        xid = self.draw_xid(transaction)
        self.drawn += 1
        before = frozenset(record.id for record in (*self.committed, *transaction.records) if record.key == key)
        record = Record(self.drawn, xid, partition, key, before)
        transaction.records.append(record)
        return record

    def roll_back_to_savepoint(self, transaction: Transaction) -> None:
        if transaction.marks:
            del transaction.records[transaction.marks.pop() :]

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        self.open.remove(transaction)
        if transaction.xid is not None:
            self.completed = max(self.completed, transaction.xid)
        if commit:
            self.committed.extend(transaction.records)

    def alive(self) -> list[Record]:
        """The records that are committed or may still be."""
        return [*self.committed, *(record for transaction in self.open for record in transaction.records)]

    # Readers.

    def snapshot(self) -> str:
        xmax = self.completed + 1
        xip = sorted(t.xid for t in self.open if t.xid is not None and t.xid < xmax)
        return f"{min(xip, default=xmax)}:{xmax}:{','.join(map(str, xip))}"

    def fence(self, drawn: int) -> Fence:
        """The second half of a look: what `age` and the snapshot say, for ids `drawn` that were read before."""
        return fence(drawn, (self.next_xid - 3) % 2**32, self.completed + 1)

    def ended(self, xids: Sequence[int]) -> list[bool]:
        return [visible(xid, self.snapshot()) for xid in xids]

    def poll(
        self, asks: Sequence[Ask], *, lo: int, hi: int, swept: Sweep | None = None
    ) -> tuple[str, list[int], dict[int, tuple[list[Record], list[Record]]]]:
        """The query `poll`: N, the floor of each late search, and the late and new records of each partition."""
        floors = [self._floor(ask.base) for ask in asks]
        rows = sorted((record for record in self.committed if lo < record.id <= hi), key=lambda record: record.id)
        rooms = [ask.room for ask in asks] if swept is None else swept.beside(asks)
        found = {
            ask.partition: self._one(ask._replace(room=room), floor, rows)
            for ask, room, floor in zip(asks, rooms, floors, strict=True)
        }
        for record in [] if swept is None else self._swept(swept):
            found[record.partition][1].append(record)
        return self.snapshot(), floors, found

    def _swept(self, swept: Sweep) -> list[Record]:
        rows = sorted((each for each in self.committed if swept.start < each.id <= swept.end), key=lambda each: each.id)
        last_ids = swept.last_ids
        return [row for row in rows if row.partition in last_ids and row.id > last_ids[row.partition]][: swept.most]

    def quick(self, shared: Page, partitions: Collection[int]) -> tuple[str, int, list[Record]]:
        """The query `quick`: N, the floor of its search, and what of these partitions N sees and the page does not.

        Its ceiling is all that is drawn.
        """
        floor = self._floor(shared)
        rows = sorted((record for record in self.committed if record.id > floor), key=lambda record: record.id)
        unseen = [row for row in rows if row.partition in partitions and not visible(row.xid, shared.snapshot)]
        return self.snapshot(), floor, unseen[: cursor_rules.CAP + 1]

    def _floor(self, base: Page) -> int:
        ended = self.ended([xid for xid, _ in base.listed])
        return min([base.settled, *(bound for (_, bound), over in zip(base.listed, ended, strict=True) if over)])

    def _one(self, ask: Ask, floor: int, rows: list[Record]) -> tuple[list[Record], list[Record]]:
        since = ask.base.snapshot
        start = max(min(floor, ask.last_id), ask.after or 0)
        end = min(ask.last_id, start + cursor_rules.STRETCH)
        mine = [record for record in rows if record.partition == ask.partition]
        late = [
            record for record in mine
            if start < record.id <= end and not visible(record.xid, since)
            and (ask.until is None or visible(record.xid, ask.until))
        ]  # fmt: skip
        new = [record for record in mine if record.id > ask.last_id]
        return late[: cursor_rules.CAP + 1], new[: ask.room]
