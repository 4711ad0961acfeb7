"""Fences, bounds and floors: the ids above which late records can still appear, as `partbox.protocol` explains.
Everything here holds for one life of the server."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


@dataclass(frozen=True)
class Page:
    """A snapshot of the event log, with lower bounds on the ids of records that were not visible in it yet."""

    # A poll read the log at this snapshot. `settled_id` is the bound for transactions that the snapshot could not list.
    # `listed_bounds` has a pair (xid, bound) for each listed transaction. The page of a saved cursor has its floor as
    # the bound of all of them. `is_complete` is True if no record that the snapshot sees lay above the ceiling of the
    # poll.

    snapshot: str
    settled_id: int
    listed_bounds: tuple[tuple[int, int], ...] = ()
    is_complete: bool = False

    @cached_property
    def floor(self) -> int:
        """The id up to which no new record can appear any more after this snapshot."""
        return min([self.settled_id, *(bound for _, bound in self.listed_bounds)])


class Fence(NamedTuple):
    """A guarantee that transactions above the transaction id `xid` write only records with ids above `drawn_id`."""

    xid: int
    drawn_id: int


def build_fence(drawn: int, age: int, xmax: int) -> Fence:
    """Return a lower bound on the record ids of later transactions, from one reading of the server's counters."""
    # Transactions above an xid draw only ids above `drawn`. The reading has the id drawn, `age('3'::xid)` read after
    # it, and a snapshot's 64-bit xmax. `age` is the distance from xid 3 to the next xid, in 32 bits. The next xid is
    # xmax or shortly after, so that xmax widens it to 64 bits.
    ahead = (age + 3 - xmax) % (1 << 32)
    return Fence(xmax + ahead - 1, drawn)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A PostgreSQL `pg_snapshot`: transactions below `xmax` had ended, except for the transactions in `xip`."""

    text: str
    xmin: int
    xmax: int
    xip: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        xmin, xmax, xip = text.split(":")
        return cls(text, int(xmin), int(xmax), tuple(map(int, xip.split(","))) if xip else ())


class Horizon:
    """A tracker of the record ids above which records of unfinished transactions may still appear.

    Each process has its own. Polls search only above these bounds. The bounds hold for one life of the server."""

    def __init__(self) -> None:
        self.fences: list[Fence] = []
        self.claimed_floor = 0
        # The page at which all partitions in lockstep were read.
        self.shared_page: Page | None = None
        self._bounds: dict[int, int] = {}

    def add_fence(self, new: Fence) -> None:
        """Remember that later transactions can draw only record ids above `new.drawn_id`."""
        # A fence with no more drawn ids than the newest fence is dropped.
        if not self.fences or new.drawn_id > self.fences[-1].drawn_id:
            self.fences.append(new)

    def note_claimed_floor(self, floor: int) -> None:
        """Remember that no further record will appear up to the id `floor`, if it is the highest such id so far."""
        # The partition that was just claimed is complete up to the floor.
        # No record up to the floor will appear any more. The floor holds for every transaction that is still open after
        # the claim.
        self.claimed_floor = max(self.claimed_floor, floor)

    def build_page(self, snapshot: Snapshot, *, is_complete: bool = False) -> Page:
        """Return a poll's snapshot with the ids above which there may be records that the poll could not see."""
        # The bounds of the open transactions that `snapshot` lists are fixed now. Call this immediately after the poll:
        # a later bound could use a floor that was claimed after the snapshot. Such a floor says nothing about a
        # transaction that ended between the two.
        for xid in snapshot.xip:
            # A bound is fixed when the transaction is first listed and must not rise: the transaction may have drawn
            # ids since.
            if xid not in self._bounds:
                self._bounds[xid] = self._find_bound(xid)
        listed = tuple((xid, self._bounds[xid]) for xid in snapshot.xip)
        return Page(snapshot.text, self._find_bound(snapshot.xmax), listed, is_complete)

    def share_page(self, snapshot: Snapshot, page: Page) -> None:
        """Store the snapshot from which the next common poll of all up-to-date partitions continues."""
        # There is a trap. The xmax of a snapshot is one past the highest completed xid, so a running transaction may
        # have an xid at or above xmax, and the snapshot does not list it. The claim "a transaction with xid >= xmax(S)
        # began after S" is therefore false. Only a fence with U < xmax(S) says something about such a transaction.
        # The page was just read at `snapshot`. The bounds of ended transactions are forgotten.
        self.shared_page = page
        listed = set(snapshot.xip)
        self._bounds = {xid: at for xid, at in self._bounds.items() if xid in listed or xid >= snapshot.xmax}
        # Keep the newest fence with U < xmax and all newer fences: only the former says something about transactions
        # that the snapshot could not list.
        while len(self.fences) > 1 and self.fences[1].xid < snapshot.xmax:
            del self.fences[0]

    def list_open_xids(self) -> list[int]:
        """Return the ids of transactions that were open at the last common poll and may have written records."""
        # The page of that poll is the shared page. A listed transaction whose bound is at or above `settled_id` is left
        # out: while no more ids are drawn, it has drawn none (see `is_idle`). Every snapshot lists the transactions of
        # other programs and databases too. Those that have begun after the last id make no poll necessary.
        page = self.shared_page
        return [xid for xid, bound in page.listed_bounds if bound < page.settled_id] if page else []

    def find_ceiling(self, last_id: int) -> int:
        """Return the highest record id that a poll needs to search."""
        # No remembered id lies above it. `last_id` is the highest last id L of the polled partitions.
        return max(self.fences[-1].drawn_id if self.fences else 0, self.claimed_floor, last_id)

    def is_idle(self, drawn: int, ended: bool) -> bool:
        """Return True if a poll can be skipped, because no record can have become visible since the last common
        poll."""
        # `drawn` is the number of ids drawn by now. `ended` is True if one of `list_open_xids` has ended.
        # The xid of a record that became visible after the shared snapshot S is either listed by S or is at or above
        # xmax(S). In the first case the transaction has ended, and the id is above its bound; if the bound is at or
        # above `settled_id`, more ids have been drawn. In the second case the xid is above the U of the fence, so the
        # id is above `settled_id`, and more ids have been drawn. The fence has to be older than S: the ids drawn
        # between that fence and S lie above the ceiling of the poll and have not been read.
        # Nothing has become visible since the shared snapshot S.
        return self.shared_page is not None and not ended and drawn == self.shared_page.settled_id

    def _find_bound(self, xid: int) -> int:
        drawn = max((fence.drawn_id for fence in self.fences if fence.xid < xid), default=0)
        return max(drawn, self.claimed_floor)
