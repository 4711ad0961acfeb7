"""Where a late record can still appear: fences, bounds, floors, and when nothing can have appeared at all.

A partition's cursor is (S, L, F): a PostgreSQL snapshot, the last id read, and a floor.

    id <= L and xid visible in S       consumed
    id >  L                            not consumed: *new*
    id <= L and xid not visible in S   not consumed: it had not committed at S and arrives *late*
    id <= F                            nothing there will *become* visible any more

Ids are drawn before their transaction commits, so a late record may lie anywhere below L. Two facts bound the search.

*Fences.* A fence (U, G) says that any transaction with xid > U draws only ids > G. It is made by reading G, the ids
drawn so far, and only then U, the last transaction id given out. What begins after it draws above it.

*Bounds.* A snapshot lists the transactions in progress. When one is first seen, its bound is fixed: the G of the newest
fence with U below its xid. It will never write at or below its bound. The floor of a page read at snapshot N is the
least bound of what N lists and of what had no xid yet at N (xmax(N) and above).

The trap: xmax of a snapshot is one past the highest *completed* xid, so a running transaction may have an xid at or
above xmax and then is not listed. "xid >= xmax(S) began after S" is therefore false; only a fence with U < xmax(S)
says something about such a transaction, which is why the newest of those is kept.

A transaction that stays open neither stalls delivery nor widens the next search: the search counts only the bounds of
listed transactions that have *ended* by the time of the poll. So each page keeps what it listed, with the bounds. The
floor that is saved counts them all, because whoever takes over has no memory of the bounds.

Everything here holds for one life of the server: ids and xids may be reused after a crash that lost a tail, so all of
it is forgotten when a connection is lost.
"""

from dataclasses import dataclass
from typing import NamedTuple

from partbox.rules.page import Page


class Fence(NamedTuple):
    """Any transaction with an xid above `xid` draws only record ids above `drawn`."""

    xid: int
    drawn: int


def fence(drawn: int, age: int, xmax: int) -> Fence:
    """The fence of one reading: ids drawn, `age('3'::xid)` read after it, and a snapshot's xmax (64 bits).

    `age` counts from xid 3 to the next xid in 32 bits; the next xid is at or shortly after xmax, which widens it.
    """
    ahead = (age + 3 - xmax) % (1 << 32)
    return Fence(xmax + ahead - 1, drawn)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A `pg_snapshot`: what is below `xmax` and not listed in `xip` had ended."""

    text: str
    xmin: int
    xmax: int
    xip: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        xmin, xmax, xip = text.split(":")
        return cls(text, int(xmin), int(xmax), tuple(map(int, xip.split(","))) if xip else ())


class Horizon:
    """What one process knows of ids that may still appear, in one life of the server."""

    def __init__(self) -> None:
        self.fences: list[Fence] = []
        self.claimed_floor = 0
        self.shared: Page | None = None  # the page that all partitions in lockstep were read from
        self._bounds: dict[int, int] = {}

    def add(self, new: Fence) -> None:
        """Remember a fence; one that knows no more ids than the newest says less and is dropped."""
        if not self.fences or new.drawn > self.fences[-1].drawn:
            self.fences.append(new)

    def claim(self, floor: int) -> None:
        """Remember the highest floor claimed: it holds for every transaction that is still open after the claim."""
        self.claimed_floor = max(self.claimed_floor, floor)

    def read(self, snapshot: Snapshot) -> Page:
        """The page just read at `snapshot`; fixes the bounds of the transactions that it lists first.

        To be asked at once: a bound taken later could rest on a floor claimed after the snapshot, which says nothing
        of a transaction that ended between the two.
        """
        for xid in snapshot.xip:
            self._bounds.setdefault(xid, self._bound(xid))
        listed = tuple((xid, self._bounds[xid]) for xid in snapshot.xip)
        return Page(snapshot.text, self._bound(snapshot.xmax), listed)

    def advance(self, snapshot: Snapshot, page: Page) -> None:
        """This page, just read at `snapshot`, is the one that partitions in lockstep share; forget what is over."""
        self.shared = page
        listed = set(snapshot.xip)
        self._bounds = {xid: at for xid, at in self._bounds.items() if xid in listed or xid >= snapshot.xmax}
        while len(self.fences) > 1 and self.fences[1].xid < snapshot.xmax:
            del self.fences[0]

    def listed(self) -> list[int]:
        """The transactions that the shared snapshot lists."""
        return [xid for xid, _ in self.shared.listed] if self.shared else []

    def ceiling(self, last_id: int) -> int:
        """No id above this is remembered anywhere; `last_id` is the highest L. A poll need not look above it."""
        return max(self.fences[-1].drawn if self.fences else 0, self.claimed_floor, last_id)

    def still(self, drawn: int, ended: bool) -> bool:
        """Nothing can be unread since the shared snapshot, given ids `drawn` by now and whether a listed one ended.

        What appears after S has an xid that S lists (then it has ended), or one at or above xmax(S), above the U of
        the fence (then its id is above `settled`, and more ids have been drawn). It must be a fence older than S: what
        was drawn and committed between that fence and S lies above the poll's ceiling and has not been read.
        """
        return self.shared is not None and not ended and drawn == self.shared.settled

    def _bound(self, xid: int) -> int:
        drawn = max((fence.drawn for fence in self.fences if fence.xid < xid), default=0)
        return max(drawn, self.claimed_floor)
