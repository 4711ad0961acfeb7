"""PostgreSQL as the cursor sees it: transaction ids, snapshots, a sequence, and the log."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from partbox.events.record import Row
from partbox.protocol.horizon import Snapshot


@dataclass(eq=False)
class Publishing:
    """A transaction in progress; `xid` None until it writes. `marks` are savepoints: how many records it had then."""

    xid: int | None = None
    records: list["Logged"] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Logged:
    """A record. `before`: those of its key that were published before it in the sense of the order guarantee."""

    id: int
    xid: int
    partition: int
    key: str | None
    type: str
    number: int  # of all that were ever published, in whatever incarnation of the server
    before: frozenset["Logged"]
    large: int = 0  # bytes, if a page leaves its payload out
    available_at: float | None = None  # by the server's clock

    @property
    def event_id(self) -> bytes:
        return self.number.to_bytes(16)

    def is_left_out_by(self, wanted: frozenset[str] | None) -> bool:
        return wanted is not None and self.type not in wanted

    def row(self, *, whole: bool = False) -> Row:
        """As a statement returns it."""
        payload = None if self.large and not whole else b"{}" + b" " * self.large
        at = None if self.available_at is None else round(self.available_at * 1e6).to_bytes(8, signed=True)
        names = (self.type, "Key", self.key, None)
        return (self.partition, self.id, self.event_id, *names, payload, None, None, None, at, bytes(8), bytes(8))

    def __repr__(self) -> str:
        return f"{self.id} of {self.key}"


def sees(snapshot: Snapshot, xid: int) -> bool:
    """`pg_visible_in_snapshot`."""
    return xid < snapshot.xmax and xid not in snapshot.xip


class ServerLog:
    """A snapshot lists the running transactions below its xmax only: those above it are not in it."""

    def __init__(self, first_xid: int) -> None:
        self.next_xid = first_xid
        self.completed = first_xid - 1
        self.drawn = 0
        self.ever = 0
        self.open: list[Publishing] = []
        self.committed: list[Logged] = []

    def begin(self) -> Publishing:
        self.open.append(Publishing())
        return self.open[-1]

    def draw_xid(self, transaction: Publishing) -> int:
        if transaction.xid is None:
            transaction.xid, self.next_xid = self.next_xid, self.next_xid + 1
        return transaction.xid

    def publish(
        self, transaction: Publishing, partition: int, key: str | None, kind: str, large: int = 0,
        available_at: float | None = None,
    ) -> Logged:  # fmt: skip
        xid = self.draw_xid(transaction)
        self.drawn += 1
        self.ever += 1
        same = (each for each in (*self.committed, *transaction.records) if key is not None and each.key == key)
        record = Logged(
            self.drawn, xid, partition, key, kind, self.ever, frozenset(same), large=large, available_at=available_at
        )
        transaction.records.append(record)
        return record

    def roll_back_to_savepoint(self, transaction: Publishing) -> None:
        if transaction.marks:
            del transaction.records[transaction.marks.pop() :]

    def end(self, transaction: Publishing, *, commit: bool) -> None:
        self.open.remove(transaction)
        if transaction.xid is not None:
            self.completed = max(self.completed, transaction.xid)
        if commit:
            self.committed.extend(transaction.records)

    def alive(self) -> list[Logged]:
        """The records that are committed or may still be."""
        return [*self.committed, *(record for transaction in self.open for record in transaction.records)]

    def in_order(self, after: int, to: int) -> list[Logged]:
        """Those committed with an id above one and not above another, by id."""
        return sorted((each for each in self.committed if after < each.id <= to), key=lambda each: each.id)

    def snapshot(self) -> Snapshot:
        xmax = self.completed + 1
        xip = sorted(each.xid for each in self.open if each.xid is not None and each.xid < xmax)
        return Snapshot.parse(f"{min(xip, default=xmax)}:{xmax}:{','.join(map(str, xip))}")

    def age(self) -> int:
        """`age('3'::xid)`: from it to the next transaction id, in 32 bits."""
        return (self.next_xid - 3) % 2**32


def ended(snapshot: Snapshot, xids: Sequence[int]) -> list[bool]:
    """Which of these transactions the snapshot sees as over."""
    return [sees(snapshot, xid) for xid in xids]
