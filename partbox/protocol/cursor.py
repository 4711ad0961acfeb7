"""The cursor of a partition, and the transitions by which a page moves the cursor (`partbox.protocol` has the rules).

The *mode* of a cursor says how the partition is polled and how much of the log may lie ahead:

    FRESH        claimed, and no complete page read since: polled alone, from its saved page
    BACKLOG      polled with the others; the last page filled its room, so there may be more records
    BEHIND       polled with the others; the last page did not fill its room, but may be incomplete
    CAUGHT_UP    has everything that the shared page sees: a quick poll (`quick_poll`) finds new records
    FRESH_CUT    the first page is cut: the other pieces are read alone
    CUT          the page is cut: the other pieces are read with the other partitions

    FRESH ──> BACKLOG, BEHIND              an uncut page, read alone
    BACKLOG, BEHIND, CAUGHT_UP ──> each    an uncut page, read with the others
    FRESH <──> FRESH_CUT                   the first piece, and the last piece
    BACKLOG, BEHIND, CAUGHT_UP ──> CUT     the first piece
    CUT ──> BACKLOG                        the last piece"""

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from partbox.protocol.horizon import Page

# Limits of one piece of a page: late records of a partition, and ids in the range that is searched for late records.
MAX_LATE = 1_000
STRETCH = 1_000_000


class LateLimits(NamedTuple):
    """The limits of one search for late records: the most records of a partition, and the most ids to search."""

    records: int
    ids: int


def usual_late_limits() -> LateLimits:
    """Return the limits of a search for late records that has not timed out."""
    return LateLimits(MAX_LATE, STRETCH)


def stretch_of(id: int) -> int:
    """Return the first id of the range of a million ids that contains `id`."""
    # All ids of a stretch have the same result.
    return id // STRETCH * STRETCH


class ReadMode(Enum):
    """The way to read a partition's records: alone or with other partitions, in whole pages or in pieces."""

    # The mode also says whether more records may lie ahead.

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
    """A request for the next records of one partition, with the position up to which the partition was read."""

    # `base_page` is the page (snapshot) at which the partition was last read: its own page, or the page that it shares
    # with other partitions.

    partition: int
    last_id: int
    room: int
    base_page: Page
    until_snapshot: str | None
    after_id: int | None

    def with_room(self, room: int) -> "ReadRequest":
        """Return a copy of the request that asks for `room` new records."""
        # `_replace` would take three times as long.
        return ReadRequest(self.partition, self.last_id, room, self.base_page, self.until_snapshot, self.after_id)


class PagePart(NamedTuple):
    """The records that a poll found for one partition."""

    # `late_ids` has the ids of records that were committed after records with higher ids were read. `raised_to` is the
    # id to which the last id L is raised, or 0. `is_last` is False for a piece of a cut page that is followed by more
    # pieces.

    page: Page
    late_ids: list[int]
    new_ids: list[int]
    raised_to: int
    is_last: bool
    is_piece: bool


class CutPage(NamedTuple):
    """The progress in reading a page of records that is too large for one query and is read in several pieces."""

    # `page` is the page of the first piece. `read_to` is the id up to which late records, which were committed after
    # higher ids, have been read.

    page: Page
    read_to: int


@dataclass(slots=True)
class Cursor:
    """The position up to which one partition of the log has been read."""

    # `base_page` is the partition's own page, or None if the partition was read in *lockstep*, at the page that all
    # partitions share. `cut_page` is set while the page is read in pieces.

    partition: int
    last_id: int
    base_page: Page | None
    mode: ReadMode = ReadMode.FRESH
    cut_page: CutPage | None = None
    # True if there may be more records than the last page had room for. A field, not a property, because it is read
    # very often.
    may_have_backlog: bool = field(init=False)

    def __post_init__(self) -> None:
        self.may_have_backlog = self.mode is not ReadMode.CAUGHT_UP and self.mode is not ReadMode.BEHIND

    @property
    def is_fresh(self) -> bool:
        """True if no complete page has been read since this process took over the partition."""
        # Until then, the partition is polled alone.
        return self.mode in ALONE

    @property
    def is_caught_up(self) -> bool:
        """True if all records of the partition that the last common query could see have been read."""
        # The query was a poll of several partitions together.
        # The snapshot of the last common poll is the shared page.
        return self.mode is ReadMode.CAUGHT_UP

    @property
    def is_in_lockstep(self) -> bool:
        """True if the partition was last read at the same snapshot as the other partitions."""
        # Otherwise the partition has a page of its own.
        return self.base_page is None

    def enter_mode(self, mode: ReadMode, base: Page | None, cut: CutPage | None = None) -> None:
        """Change how the partition is polled, such as alone or together with other partitions."""
        # The next poll builds on the page `base`. `cut` is the cut page if the cursor is in the middle of a page that
        # is read in pieces.
        assert mode is self.mode or mode in _NEXT[self.mode], (self.mode, mode)
        assert (cut is not None) == (mode in _CUT), (mode, cut)
        assert base is None if mode is ReadMode.CAUGHT_UP else base is not None or mode in _TOGETHER, (mode, base)
        self.mode, self.base_page, self.cut_page = mode, base, cut
        self.may_have_backlog = mode is not ReadMode.CAUGHT_UP and mode is not ReadMode.BEHIND

    def build_request(self, room: int, shared: Page | None) -> ReadRequest:
        """Return the parameters of the partition's next poll, which asks for at most `room` new records."""
        # Late records are read even without room. New records are not read inside a cut page. `shared` is the page of
        # the partitions in lockstep, and None for partitions that are polled alone.
        base = self.base_page or shared
        assert base is not None, "a partition polled alone has a page of its own"
        # A partition that is caught up has read everything up to the floor of the shared page, however low its last id
        # is.
        last_id = max(self.last_id, base.floor) if self.is_caught_up else self.last_id
        if self.cut_page is not None:
            return ReadRequest(self.partition, last_id, 0, base, self.cut_page.page.snapshot, self.cut_page.read_to)
        # A partition without room is polled too, and its late records are taken. The next base is the snapshot of this
        # poll, for which a late record that was left out would count as consumed.
        return ReadRequest(self.partition, last_id, max(room, 0), base, None, None)

    def find_search_start(self, floor: int) -> int:
        """Return the id above which the next poll searches for records that were committed late."""
        # No late record of the partition appeared up to the id `floor`.
        # The floor may lie above L. It only says that no record below it will still become visible: records between L
        # and the floor may be visible and unread. A search that began at such a floor would skip them.
        return max(min(floor, self.last_id), self.cut_page.read_to if self.cut_page else 0)

    def take_page(
        self,
        asked: ReadRequest,
        page: Page,
        floor: int,
        late: list[int],
        new: list[int],
        *,
        together: bool,
        limits: LateLimits | None = None,
    ) -> PagePart:
        """Advance the reading position by a poll's result, and return the records to deliver.

        `late` and `new` are the ids found, in ascending order. `floor` is the bound that the search for late records
        used. `together` is True if the answer belongs to the poll that all partitions in lockstep share."""
        # Only transactions that `asked.base` lists and that have ended count for `floor`. A page is cut if there are
        # too many late records, if the range to search is too long, or if the late records have more bytes than there
        # is room for. In the last case, the piece ends with the last record whose payload was read. After a cut page,
        # the next base is the snapshot T of its first piece itself, not only its floor. The floor counts transactions
        # that stay open, and would cause every next page to be cut again. After an uncut page that did not fill its
        # room, L is raised to the floor of the page, so that a quiet partition prevents neither pruning nor purge.
        # `limits` are the limits of the poll. The result has no more late records.
        start = self.find_search_start(floor)
        cap, stretch = limits or usual_late_limits()
        # More late records than one page may deliver: read the others in further pieces.
        if len(late) > cap:
            return self._take_piece(asked.base_page, page, late[:cap], late[cap - 1] if cap else start)
        # A longer range was not searched to its end.
        if start + stretch < self.last_id:
            return self._take_piece(asked.base_page, page, late, start + stretch)
        # The last piece of a cut page. New records are read only by the next page, from T on.
        if self.cut_page is not None:
            page = self.cut_page.page
            self.enter_mode(ReadMode.FRESH if self.is_fresh else ReadMode.BACKLOG, page)
            return PagePart(page, late, [], 0, is_last=True, is_piece=True)
        full = len(new) >= asked.room
        # If the ceiling of the poll lay below the ids drawn by then, records above it are unread although the snapshot
        # sees them. Quick polls would never return them, so such a partition is not caught up.
        has_all = together and page.is_complete and not full
        mode = ReadMode.CAUGHT_UP if has_all else ReadMode.BACKLOG if full else ReadMode.BEHIND
        self.enter_mode(mode, None if together else page)
        return self._move_to(page, late, new, full=full)

    def take_quick(self, page: Page, ids: list[int]) -> PagePart:
        """Advance the reading position past the ids that a scan of several partitions found. Return the records to
        deliver."""
        # A cursor that is caught up follows the shared page from one quick poll to the next, and changes only if a poll
        # returns records for it. The records that became visible in between belong to other partitions.
        # This is a quick poll, one scan for all partitions that are caught up. The partition must be caught up. `ids`
        # are the ids found, in ascending order.
        assert self.mode is ReadMode.CAUGHT_UP, self
        # The scan returns late records, with ids up to L, among the new ones. They must stay late: if they counted as
        # new, the snapshot of the page could be saved while they are unfinished, and a crash would lose them.
        late = bisect_right(ids, self.last_id)
        return self._move_to(page, ids[:late], ids[late:], full=False)

    def keep_page(self, shared: Page) -> None:
        """Remember the snapshot at which the partition was last read, before the other partitions move on to a newer
        one."""
        # The snapshot is `shared`, unless the partition has a page of its own.
        # When a quick poll moves the shared page on, a partition that is not caught up has to keep the page that it
        # has. For a partition that is caught up, the unread records are always the records that the shared page does
        # not see.
        # Call this before a quick poll, in which the partition takes no part, moves the shared page on.
        assert self.mode is not ReadMode.CAUGHT_UP, self
        self.base_page = self.base_page or shared

    def _take_piece(self, base: Page, page: Page, late: list[int], end: int) -> PagePart:
        if self.cut_page is None:
            self.enter_mode(ReadMode.FRESH_CUT if self.is_fresh else ReadMode.CUT, base, CutPage(page, end))
        else:
            page = self.cut_page.page
            self.cut_page = CutPage(page, end)
        return PagePart(page, late, [], 0, is_last=False, is_piece=True)

    def _move_to(self, page: Page, late: list[int], new: list[int], *, full: bool) -> PagePart:
        self.last_id = new[-1] if new else self.last_id
        # A page that filled its room may have left records below the floor, so L must not be raised past them.
        raised_to = page.floor if not full and page.floor > self.last_id else 0
        self.last_id = max(self.last_id, raised_to)
        return PagePart(page, late, new, raised_to, is_last=True, is_piece=False)
