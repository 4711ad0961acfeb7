"""The reading position of one partition, and how a page moves it; the rules are in the essay of `partbox.protocol`.

Its *mode* says how it is polled, and what is known of the log ahead of it:

    FRESH        claimed, and not read whole since: it is polled alone, from its saved page
    BACKLOG      it is polled with the others; its last page had no room to spare, so there may be more
    BEHIND       it is polled with the others; its last page had room to spare, and may not have had all
    CAUGHT_UP    it has all that the shared page sees: a quick poll (`quick_poll`) finds what is new
    FRESH_CUT    its first page is cut: the rest is read alone
    CUT          its page is cut: the rest is read with the others

    FRESH ──> BACKLOG, BEHIND              an uncut page, read alone
    BACKLOG, BEHIND, CAUGHT_UP ──> each    an uncut page, read with the others
    FRESH <──> FRESH_CUT                   the first piece, and the last
    BACKLOG, BEHIND, CAUGHT_UP ──> CUT     the first piece
    CUT ──> BACKLOG                        the last piece

A page is cut where a partition has too many late records or too long a range to search, and where its late records
have more bytes than there is room for: the piece ends with the last that has its payload. After a cut page the base is
T itself, not its floor: the floor counts transactions that stay open, and would cut every next page again.

A partition in BACKLOG or BEHIND has a page of its own, or is in *lockstep*: it was read from the page that all share.
When that page moves on by a quick poll, it stays at the page that it has. What is unread of one that is caught up is
what the shared page does not see, wherever it is.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from partbox.protocol.horizon import Page

MAX_LATE = 1_000
STRETCH = 1_000_000


def stretch_of(id: int) -> int:
    """Beginning of the stretch of ids that this one lies in, the same for a million of them."""
    return id // STRETCH * STRETCH


class ReadMode(Enum):
    """The way in which a partition is read; see above."""

    FRESH = "fresh"
    BACKLOG = "backlog"
    BEHIND = "behind"
    CAUGHT_UP = "caught up"
    FRESH_CUT = "fresh, cut"
    CUT = "cut"


ALONE: Final = (ReadMode.FRESH, ReadMode.FRESH_CUT)
_TOGETHER: Final = (ReadMode.BACKLOG, ReadMode.BEHIND, ReadMode.CAUGHT_UP)
_CUT: Final = (ReadMode.FRESH_CUT, ReadMode.CUT)
_NEXT: Final = MappingProxyType(
    dict.fromkeys(_TOGETHER, (*_TOGETHER, ReadMode.CUT))
    | {
        ReadMode.FRESH: (ReadMode.BACKLOG, ReadMode.BEHIND, ReadMode.FRESH_CUT),
        ReadMode.FRESH_CUT: (ReadMode.FRESH,),
        ReadMode.CUT: (ReadMode.BACKLOG,),
    }
)


class ReadRequest(NamedTuple):
    """The request for one partition; `base` is the page that it was read from last, its own or the shared one."""

    partition: int
    last_id: int
    room: int
    base: Page
    until: str | None
    after: int | None

    def with_room(self, room: int) -> "ReadRequest":
        """A copy of the request that asks for `room` new records; `_replace` would take three times as long."""
        return ReadRequest(self.partition, self.last_id, room, self.base, self.until, self.after)


class PagePart(NamedTuple):
    """The part of a page that counts: its page, its late and new ids, and the id that L is raised to (0: none).

    `last` is false for a piece of a cut page that has more to come.
    """

    page: Page
    late: list[int]
    new: list[int]
    raised_to: int
    last: bool
    is_piece: bool


class CutPage(NamedTuple):
    """A page that is read in pieces: that of its first piece, and the id that late records were searched up to."""

    page: Page
    read_to: int


@dataclass(slots=True)
class Cursor:
    """The reading position of one partition; `base` None: it was read from the page that those in lockstep share.

    One that is caught up follows the shared page from quick poll to quick poll, and nothing here changes unless a poll
    brings something: what has become visible in between is nothing of its. `cut` is there while its page is cut.
    """

    partition: int
    last_id: int
    base: Page | None
    mode: ReadMode = ReadMode.FRESH
    cut: CutPage | None = None
    full: bool = field(init=False)  # there may be more than the last page had room for; asked for very often

    def __post_init__(self) -> None:
        self.full = self.mode is not ReadMode.CAUGHT_UP and self.mode is not ReadMode.BEHIND

    @property
    def fresh(self) -> bool:
        """True if it is polled alone."""
        return self.mode in ALONE

    @property
    def caught_up(self) -> bool:
        """True if it has all that the shared page sees."""
        return self.mode is ReadMode.CAUGHT_UP

    @property
    def lockstep(self) -> bool:
        """True if it was read from the page that all share."""
        return self.base is None

    def enter_mode(self, mode: ReadMode, base: Page | None, cut: CutPage | None = None) -> None:
        """Enter a mode, with the page that the next poll reads from, and the cut page if it is inside one."""
        assert mode is self.mode or mode in _NEXT[self.mode], (self.mode, mode)
        assert (cut is not None) == (mode in _CUT), (mode, cut)
        assert base is None if mode is ReadMode.CAUGHT_UP else base is not None or mode in _TOGETHER, (mode, base)
        self.mode, self.base, self.cut = mode, base, cut
        self.full = mode is not ReadMode.CAUGHT_UP and mode is not ReadMode.BEHIND

    def ask(self, room: int, shared: Page | None) -> ReadRequest:
        """The request for the next poll; late records are read whatever the room, new ones not inside a cut page.

        `shared` is the page of those in lockstep; None for partitions polled alone. A partition that is caught up has
        all up to the floor of that page, however far back its last id lies.
        """
        base = self.base or shared
        assert base is not None, "a partition polled alone has a page of its own"
        last_id = max(self.last_id, base.floor) if self.caught_up else self.last_id
        if self.cut is not None:
            return ReadRequest(self.partition, last_id, 0, base, self.cut.page.snapshot, self.cut.read_to)
        return ReadRequest(self.partition, last_id, max(room, 0), base, None, None)

    def start(self, floor: int) -> int:
        """The late search begins above this id, if no record at or below `floor` can have appeared."""
        return max(min(floor, self.last_id), self.cut.read_to if self.cut else 0)

    def take(
        self,
        asked: ReadRequest,
        page: Page,
        floor: int,
        late: list[int],
        new: list[int],
        *,
        together: bool,
        cap: int | None = None,
    ) -> PagePart:
        """Move to `page`, of which `late` and `new` came, ids in order; of the late ones `cap` can be delivered.

        `floor` is what bounded the late search: of what `asked.base` listed, only transactions that had ended count.
        `together`: the poll was the one that partitions in lockstep share.
        """
        start = self.start(floor)
        cap = MAX_LATE if cap is None else cap
        if len(late) > cap:
            return self._take_piece(asked.base, page, late[:cap], late[cap - 1] if cap else start)
        if start + STRETCH < self.last_id:
            return self._take_piece(asked.base, page, late, start + STRETCH)
        if self.cut is not None:
            page = self.cut.page
            self.enter_mode(ReadMode.FRESH if self.fresh else ReadMode.BACKLOG, page)
            return PagePart(page, late, [], 0, last=True, is_piece=True)
        full = len(new) >= asked.room
        has_all = together and page.is_complete and not full
        mode = ReadMode.CAUGHT_UP if has_all else ReadMode.BACKLOG if full else ReadMode.BEHIND
        self.enter_mode(mode, None if together else page)
        return self._move_to(page, late, new, full=full)

    def take_quick(self, page: Page, ids: list[int]) -> PagePart:
        """Move to the page of a quick poll, which brought these ids of it, in order; it must be caught up."""
        assert self.mode is ReadMode.CAUGHT_UP, self
        late = bisect_right(ids, self.last_id)
        return self._move_to(page, ids[:late], ids[late:], full=False)

    def stay(self, shared: Page) -> None:
        """Keep the `shared` page, if it was read from that one: those that are caught up move on from it."""
        assert self.mode is not ReadMode.CAUGHT_UP, self
        self.base = self.base or shared

    def _take_piece(self, base: Page, page: Page, late: list[int], end: int) -> PagePart:
        if self.cut is None:
            self.enter_mode(ReadMode.FRESH_CUT if self.fresh else ReadMode.CUT, base, CutPage(page, end))
        else:
            page = self.cut.page
            self.cut = CutPage(page, end)
        return PagePart(page, late, [], 0, last=False, is_piece=True)

    def _move_to(self, page: Page, late: list[int], new: list[int], *, full: bool) -> PagePart:
        self.last_id = new[-1] if new else self.last_id
        raised_to = page.floor if not full and page.floor > self.last_id else 0
        self.last_id = max(self.last_id, raised_to)
        return PagePart(page, late, new, raised_to, last=True, is_piece=False)
