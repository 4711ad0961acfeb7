"""Where one partition is read from, and how a page moves it.

A partition just claimed is *fresh*: polled alone, from its own (S, L, F). After an uncut page it takes part in the
shared poll with the snapshot it has, and after that poll it is in *lockstep*: it has the snapshot that all share.

A page is *cut* when more late records come than `CAP`, or when the range to search is longer than `STRETCH` ids. Then
the piece is delivered, the partition's new records of that page are discarded (what precedes them may be in the rest),
and (S, L, F) stay. The snapshot T of the first piece is remembered: later pieces read what is visible in T, from where
the last piece ended. When the range is through, T becomes S. So every poll is bounded.
"""

from dataclasses import dataclass
from typing import NamedTuple

from partbox.rules.progress import Page

CAP = 1_000
STRETCH = 1_000_000


class Ask(NamedTuple):
    """What a poll asks of one partition; None in `snapshot` and `floor`: what the partitions in lockstep share."""

    partition: int
    last_id: int
    room: int
    snapshot: str | None
    floor: int | None
    until: str | None
    after: int | None


class Reading(NamedTuple):
    """What of a page counts: its late and new ids, the id that L is raised to (0: none), and the page it belongs to.

    `last` is false for a piece of a cut page that has more to come.
    """

    page: Page
    late: list[int]
    new: list[int]
    raised: int
    last: bool
    piece: bool


@dataclass(slots=True)
class Cursor:
    """The reading position of one partition."""

    partition: int
    last_id: int
    snapshot: str | None
    floor: int | None
    fresh: bool = True
    full: bool = True
    until: Page | None = None
    after: int | None = None

    @property
    def lockstep(self) -> bool:
        return self.snapshot is None

    def ask(self, room: int) -> Ask:
        """What to ask for; late records are read whatever the room, new ones not inside a cut page."""
        until = self.until.snapshot if self.until else None
        return Ask(
            self.partition, self.last_id, 0 if until else max(room, 0), self.snapshot, self.floor, until, self.after
        )

    def lowest(self, shared_floor: int) -> int:
        """No id at or below this is of interest to the next poll."""
        return max(min(shared_floor if self.floor is None else self.floor, self.last_id), self.after or 0)

    def read(self, asked: Ask, page: Page, shared: Page | None, late: list[int], new: list[int]) -> Reading:
        """Move to `page`, of which `late` and `new` came, ids in order.

        `shared` is what the partitions in lockstep were read from, (their snapshot, the floor used); None for a
        partition polled alone.
        """
        own = self.snapshot is not None and self.floor is not None
        base = Page(self.snapshot or "", self.floor or 0) if own else shared
        assert base is not None, "a partition polled alone has a snapshot of its own"
        start = max(min(base.floor, self.last_id), self.after or 0)
        if len(late) > CAP:
            return self._piece(page, base, late[:CAP], late[CAP - 1])
        if start + STRETCH < self.last_id:
            return self._piece(page, base, late, start + STRETCH)
        if self.until is not None:
            return self._through(late)
        return self._whole(page, asked.room, shared is not None, late, new)

    def _piece(self, page: Page, base: Page, late: list[int], end: int) -> Reading:
        if self.until is None:
            self.until, self.snapshot, self.floor = page, base.snapshot, base.floor
        self.after, self.full = end, True
        return Reading(self.until, late, [], 0, last=False, piece=True)

    def _through(self, late: list[int]) -> Reading:
        page = self.until
        assert page is not None
        self.snapshot, self.floor, self.until, self.after, self.full = page.snapshot, page.floor, None, None, True
        return Reading(page, late, [], 0, last=True, piece=True)

    def _whole(self, page: Page, room: int, together: bool, late: list[int], new: list[int]) -> Reading:
        self.fresh = False
        self.snapshot, self.floor = (None, None) if together else (page.snapshot, page.floor)
        self.full = len(new) >= room
        self.last_id = new[-1] if new else self.last_id
        raised = page.floor if not self.full and page.floor > self.last_id else 0
        self.last_id = max(self.last_id, raised)
        return Reading(page, late, new, raised, last=True, piece=False)
