"""Fences, bounds and floors: the ids above which a late record can still appear, and the test that none can have.

See the essay of `partbox.protocol`. Everything here holds for one life of the server.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


@dataclass(frozen=True)
class Page:
    """The page read at `snapshot` (text): a record that it does not see will have an id above one of these bounds.

    `settled`: for transactions that the snapshot could not list. `listed`: (xid, bound) of each that it lists. A saved
    cursor has its floor for all of them. `is_complete`: no record that the snapshot sees lay above the poll's ceiling.
    """

    snapshot: str
    settled: int
    listed: tuple[tuple[int, int], ...] = ()
    is_complete: bool = False

    @cached_property
    def floor(self) -> int:
        """No record with an id at or below this will become visible after the page."""
        return min([self.settled, *(bound for _, bound in self.listed)])


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
    """A `pg_snapshot`: transactions below `xmax` and not listed in `xip` had ended."""

    text: str
    xmin: int
    xmax: int
    xip: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        xmin, xmax, xip = text.split(":")
        return cls(text, int(xmin), int(xmax), tuple(map(int, xip.split(","))) if xip else ())


class Horizon:
    """A process's knowledge of ids that may still appear, in one life of the server."""

    def __init__(self) -> None:
        self.fences: list[Fence] = []
        self.claimed_floor = 0
        self.shared: Page | None = None  # the page that all partitions in lockstep were read from
        self._bounds: dict[int, int] = {}

    def add_fence(self, new: Fence) -> None:
        """Remember a fence; one that knows no more ids than the newest says less and is dropped."""
        if not self.fences or new.drawn > self.fences[-1].drawn:
            self.fences.append(new)

    def claim(self, floor: int) -> None:
        """Remember the highest floor claimed: it holds for every transaction that is still open after the claim."""
        self.claimed_floor = max(self.claimed_floor, floor)

    def build_page(self, snapshot: Snapshot, *, is_complete: bool = False) -> Page:
        """The page just read at `snapshot`; fixes the bounds of the transactions that it lists first.

        Call it at once: a bound taken later could rest on a floor claimed after the snapshot, which says nothing
        of a transaction that ended between the two.
        """
        for xid in snapshot.xip:
            self._bounds.setdefault(xid, self._bound(xid))
        listed = tuple((xid, self._bounds[xid]) for xid in snapshot.xip)
        return Page(snapshot.text, self._bound(snapshot.xmax), listed, is_complete)

    def share_page(self, snapshot: Snapshot, page: Page) -> None:
        """Share this page, just read at `snapshot`, among partitions in lockstep; forget transactions that are over."""
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

    def is_idle(self, drawn: int, ended: bool) -> bool:
        """True if nothing can be unread since the shared snapshot: `drawn` ids by now, `ended` if a listed one has.

        What appears after S has an xid that S lists (then it has ended), or one at or above xmax(S), above the U of
        the fence (then its id is above `settled`, and more ids have been drawn). It must be a fence older than S: what
        was drawn and committed between that fence and S lies above the poll's ceiling and has not been read.
        """
        return self.shared is not None and not ended and drawn == self.shared.settled

    def _bound(self, xid: int) -> int:
        drawn = max((fence.drawn for fence in self.fences if fence.xid < xid), default=0)
        return max(drawn, self.claimed_floor)
