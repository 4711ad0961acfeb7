"""The reading position of one partition, and how a page moves it.

Fresh, lockstep and cut pages: see the essay of `partbox.protocol`. A page is cut too where its late records have more
bytes than there is room for: the piece ends with the last that has its payload. After a cut page the base is T itself,
not its floor: the floor counts transactions that stay open, and would cut every next page again.

A partition in lockstep is *caught up* when it has all that the shared page sees. What is unread of it is then what
that page does not see, wherever it is: a quick poll (`quick_poll`) finds it for all that are caught up at once.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from partbox.protocol.horizon import Page

CAP = 1_000
STRETCH = 1_000_000


def stretch_of(id: int) -> int:
    """Beginning of the stretch of ids that this one lies in, the same for a million of them."""
    return id // STRETCH * STRETCH


class Ask(NamedTuple):
    """The request for one partition; `base` is the page that it was read from last, its own or the shared one."""

    partition: int
    last_id: int
    room: int
    base: Page
    until: str | None
    after: int | None


class Reading(NamedTuple):
    """The part of a page that counts: its page, its late and new ids, and the id that L is raised to (0: none).

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
    """The reading position of one partition; `base` None: it is read from the page that those in lockstep share.

    One that is `caught_up` follows the shared page from quick poll to quick poll, though nothing of it is touched here
    unless one brings something: what has become visible in between is nothing of its.
    """

    partition: int
    last_id: int
    base: Page | None
    fresh: bool = True
    full: bool = True
    caught_up: bool = False
    until: Page | None = None
    after: int | None = None

    @property
    def lockstep(self) -> bool:
        return self.base is None

    def ask(self, room: int, shared: Page | None) -> Ask:
        """The request for the next poll; late records are read whatever the room, new ones not inside a cut page.

        `shared` is the page of those in lockstep; None for partitions polled alone. Who is caught up has all up to the
        floor of that page, however far back its last id lies.
        """
        base = self.base or shared
        assert base is not None, "a partition polled alone has a page of its own"
        last_id = max(self.last_id, base.floor) if self.caught_up and self.lockstep else self.last_id
        until = self.until.snapshot if self.until else None
        return Ask(self.partition, last_id, 0 if until else max(room, 0), base, until, self.after)

    def start(self, floor: int) -> int:
        """The late search begins above this id, if no record at or below `floor` can have appeared."""
        return max(min(floor, self.last_id), self.after or 0)

    def take(
        self,
        asked: Ask,
        page: Page,
        floor: int,
        late: list[int],
        new: list[int],
        *,
        together: bool,
        cap: int | None = None,
    ) -> Reading:
        """Move to `page`, of which `late` and `new` came, ids in order; of the late ones `cap` can be delivered.

        `floor` is what bounded the late search: of what `asked.base` listed, only transactions that had ended count.
        `together`: the poll was the one that partitions in lockstep share.
        """
        start = self.start(floor)
        cap = CAP if cap is None else cap
        if len(late) > cap:
            return self._piece(asked.base, page, late[:cap], late[cap - 1] if cap else start)
        if start + STRETCH < self.last_id:
            return self._piece(asked.base, page, late, start + STRETCH)
        if self.until is not None:
            page = self.until
            self.base, self.until, self.after, self.full = page, None, None, True
            return Reading(page, late, [], 0, last=True, piece=True)
        self.fresh = False
        self.base = None if together else page
        self.full = len(new) >= asked.room
        self.caught_up = together and page.whole and not self.full
        return self._moved(page, late, new)

    def take_quick(self, page: Page, ids: list[int]) -> Reading:
        """Move to the page of a quick poll, of which these came, in order. It must be caught up."""
        late = bisect_right(ids, self.last_id)
        return self._moved(page, ids[:late], ids[late:])

    def stay(self, shared: Page) -> None:
        """Those that are caught up leave the `shared` page: if it was read from that one, it still is."""
        self.base = self.base or shared

    def _piece(self, base: Page, page: Page, late: list[int], end: int) -> Reading:
        if self.until is None:
            self.until, self.base, self.caught_up = page, base, False
        self.after, self.full = end, True
        return Reading(self.until, late, [], 0, last=False, piece=True)

    def _moved(self, page: Page, late: list[int], new: list[int]) -> Reading:
        self.last_id = new[-1] if new else self.last_id
        raised = page.floor if not self.full and page.floor > self.last_id else 0
        self.last_id = max(self.last_id, raised)
        return Reading(page, late, new, raised, last=True, piece=False)
