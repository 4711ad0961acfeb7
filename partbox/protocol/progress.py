"""The progress of a partition: records read, records finished, and the cursor that a save may store."""

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from partbox.protocol.horizon import Page

MAX_LATE_PAGES = 64

# The id of a record and its event id, which is empty for a parked record.
RecordKey = tuple[int, bytes]


def free_empty_tables(*tables: dict[Any, Any]) -> None:
    """Free the memory of the dictionaries that are empty."""
    # A dictionary that is emptied one item at a time keeps its largest table until it is filled again. A process has
    # several dictionaries for each of 256 partitions, and one after another is large for a moment, when many late
    # records arrive or an outage parks them. All of them together took up to 300 kB per partition.
    for table in tables:
        if not table:
            table.clear()


@dataclass(slots=True)
class LatePage:
    """A batch of records, some of them still unfinished and committed only after higher ids were read."""

    # Such a record is late: it became visible only after records with higher ids were read. `page_before` is the batch
    # before. `read_before` counts the new records of all earlier pages.

    page_before: Page
    page: Page
    unfinished_ids: set[int]
    read_before: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class SaveTarget:
    """A reading position of one partition that may be saved now, because the records before it are finished."""

    # `passed_count` is the number of new records that the position passes, and `passed_for_good` the number that are
    # never read again. A reader that starts from the position may read the other passed records again, as late records.

    page: Page
    last_id: int
    passed_count: int
    passed_for_good: int


@dataclass(slots=True)
class Progress:
    """The records of one partition that this process has read, finished and saved since it took over the partition.

    The process claimed the partition at `page` and `last_id`.

    Finished records that are not saved are kept with their event ids (empty for parked records). After a lost
    connection, a record that is read again can thus be distinguished from a new record with the same id."""

    page: Page
    last_id: int
    late_pages: deque[LatePage] = field(default_factory=deque)
    read_count: int = 0
    passed_count: int = 0
    saved_count: int = 0
    # The last id of the new records that the saved position has passed for good.
    last_id_for_good: int = field(init=False)
    _passed_for_good: int = 0
    _forgotten_count: int = 0
    _unpassed_ids: list[int] = field(default_factory=list)
    # New records that finished out of order, and late records.
    _finished: dict[int, bytes] = field(default_factory=dict)
    # New records up to `last_id`, in order, with their event ids. Two lists are cheaper than a list of pairs.
    _passed_ids: list[int] = field(default_factory=list)
    _passed_event_ids: list[bytes] = field(default_factory=list)
    _passed_late_ids: list[int] = field(default_factory=list)
    _floor_raises: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.last_id_for_good = self.last_id

    def take_page(self, page: Page, late: Sequence[int], new: list[int], raised_to: int = 0) -> None:
        """Add the ids of records that were just read: late records (committed after higher ids) and new records."""
        # The page was read in one piece.
        # A late record was committed after records with higher ids were read. The new records are in order. `raised_to`
        # is the id to which the last id L is raised after the page, or 0.
        if late or self.late_pages:
            self.take_piece(page, late, last=True)
        else:
            self.page = page
        self._unpassed_ids.extend(new)
        self.read_count += len(new)
        # A raise of L stands in the queue like a record that is finished. A raise is a floor, so no record can have its
        # id.
        if raised_to and self._floor_raises and self._unpassed_ids and self._unpassed_ids[-1] == self._floor_raises[-1]:
            self._unpassed_ids[-1] = self._floor_raises[-1] = raised_to
        elif raised_to:
            self._unpassed_ids.append(raised_to)
            self._floor_raises.append(raised_to)

    def take_piece(self, page: Page, late: Iterable[int], last: bool) -> None:
        """Add late records (committed after higher ids were read) of a batch that takes several polls to read."""
        # Each poll reads a piece of the page. `last` is true for the last piece.
        # All pieces of a cut page belong to the page of the first piece.
        ids = set(late)
        if self.late_pages and self.late_pages[-1].is_cut:
            self.late_pages[-1].unfinished_ids |= ids
            self.late_pages[-1].is_cut = not last
        elif ids or not last:
            self.late_pages.append(LatePage(self.page, page, ids, self.read_count, not last))
            # Merge the two newest pages. The merged page counts as read only when the late records of both are
            # finished, so its snapshot and floor are never saved too early.
            if len(self.late_pages) > MAX_LATE_PAGES:
                newest, older = self.late_pages.pop(), self.late_pages.pop()
                late = older.unfinished_ids | newest.unfinished_ids
                self.late_pages.append(LatePage(older.page_before, newest.page, late, older.read_before, newest.is_cut))
        if last:
            self.page = page

    def finish(self, ids: list[int], event_ids: list[bytes]) -> None:
        """Record that records are finished: handled, or stored separately as failed or waiting events."""
        # A record that was stored separately (parked) has an empty event id.
        # Nearly all records finish in the order in which they were read, and move from the head of `_unpassed_ids`
        # directly to the end of `_passed_ids`. `_finished` holds the others.
        count, unread = len(ids), self._unpassed_ids
        if count and unread[:count] == ids:
            del unread[:count]
            self._append_passed(ids, event_ids)
        else:
            self._finished.update(zip(ids, event_ids, strict=True))

    def unfinish(self, record_id: int) -> None:
        """Take back that a record is finished, because its transaction was rolled back."""
        # The record has to be read again.
        self._finished.pop(record_id, None)
        if (at := self._find_passed_index(record_id)) is not None:
            del self._passed_ids[at], self._passed_event_ids[at]

    def refinish(self, record_id: int, event_id: bytes) -> None:
        """Record that the handler of an event that was set aside earlier is now done."""
        # The event id replaces the empty event id with which the finished record was parked.
        if record_id in self._finished:
            self._finished[record_id] = event_id
        elif (at := self._find_passed_index(record_id)) is not None:
            self._passed_event_ids[at] = event_id

    def has_finished(self, record_id: int) -> bool:
        """Return True if the record is finished and this is not yet saved in the database."""
        return record_id in self._finished or self._find_passed_index(record_id) is not None

    def count_finished(self) -> int:
        """Return the number of the partition's records that are finished but not yet saved as finished."""
        return len(self._finished) + len(self._passed_ids)

    def list_unfinished(self) -> list[int]:
        """Return the ids of all records of the partition that were read and are not finished."""
        late = (id for page in self.late_pages for id in page.unfinished_ids)
        return [id for id in (*late, *self._unpassed_ids) if id not in self._finished and id not in self._floor_raises]

    def list_done(self) -> list[RecordKey]:
        """Return (record id, event id) of each record whose handler is done and whose completion is unsaved."""
        # Parked records are left out.
        passed = zip(self._passed_ids, self._passed_event_ids, strict=True)
        return [pair for pair in (*passed, *self._finished.items()) if pair[1]]

    def count_unsaved(self) -> int:
        """Return the number of new records that were read above the saved reading position."""
        # The position is the saved last id of the partition.
        return self.read_count - self.saved_count

    def find_highest_read(self) -> int:
        """Return the highest record id that was read in the partition."""
        return max(self.last_id, *self._unpassed_ids[-1:], max(self._finished, default=0))

    def count_in_flight(self) -> int:
        """Return the number of new records of the partition that were read and are not finished."""
        # The number is too low by the number of late records that are finished.
        return len(self._unpassed_ids) - len(self._floor_raises) - len(self._finished)

    def count_finished_ever(self) -> int:
        """Return the number of records finished since this process claimed the partition."""
        return self._forgotten_count + self.count_finished()

    def count_waiting(self) -> int:
        """Return the number of the partition's unfinished records, including records that were committed late."""
        # The records were read.
        # New and late records count.
        late = sum(len(page.unfinished_ids) for page in self.late_pages) + len(self._passed_late_ids)
        return max(0, len(self._unpassed_ids) - len(self._floor_raises) + late - len(self._finished))

    def find_next_unfinished(self, taken: Container[int] = ()) -> int | None:
        """Return the id of the first unfinished record whose completion would advance the saved position, or None."""
        # The record is the first new record that is neither finished nor in `taken`. The next save could then pass it
        # for good. The result is None if there is no such id, or while a late record is unfinished.
        self._pass_finished()
        # Inside a cut page no save can pass a new record, so the transaction of an event that started now would be
        # rolled back.
        if any(page.is_cut or not self._finished.keys() >= page.unfinished_ids for page in self.late_pages):
            return None
        skipped = (self._finished, self._floor_raises, taken)
        return next((id for id in self._unpassed_ids if not any(id in each for each in skipped)), None)

    def find_save_target(self) -> SaveTarget:
        """Return the furthest reading position that may be saved now."""
        # The docstring of `partbox.protocol` explains the rule for saves. The passed records beyond `for_good` were
        # read in later pages than the cursor's page. The cursor's snapshot may not see some of them, so a reader that
        # starts from it would read them again, as late records.
        # No record that this cursor counts as consumed may be unfinished.
        self._pass_finished()
        page, read = self._page_for(self.last_id)
        return SaveTarget(page, self.last_id, self.passed_count, min(read, self.passed_count))

    def passes_for_good(self, target: SaveTarget, record_id: int) -> bool:
        """Return True if saving the position `target` ensures that the record is never delivered again."""
        # The cursor was made just now. A save settles a given new record for good if no later reader gets it again. The
        # record has to have finished since the last save.
        for_good = target.passed_for_good - self._passed_for_good
        return for_good > 0 and self._passed_ids[for_good - 1] >= record_id

    def find_release_target(self) -> SaveTarget:
        """Return the reading position to save when the process gives up the partition."""
        # Every record up to the highest finished id is finished, or is parked by this save.
        self._pass_finished()
        # A finished id that was passed is at most `last_id`.
        highest = max(self._finished, default=0)
        # `self.page` is the last page in which this partition took part. A newer snapshot of the process may see
        # records of the partition that nobody has read, and they would count as consumed.
        return SaveTarget(self.page, max(self.last_id, highest), self.read_count, self.passed_count)

    def note_saved(self, target: SaveTarget) -> None:
        """Forget the finished records that lie below the saved position `target`."""
        # The cursor is committed now. A late record above the target's last id is a new record for the saved cursor, so
        # it is kept.
        finished = self._finished
        self.saved_count, before = target.passed_count, self.count_finished()
        if (more := max(0, target.passed_for_good - self._passed_for_good)) > 0:
            self.last_id_for_good = self._passed_ids[more - 1]
        del self._passed_ids[:more], self._passed_event_ids[:more]
        self._passed_for_good += more
        # The saved cursor reads a late record above its last id again, as a new record. Its event id has to be kept
        # until then.
        for id in self._passed_late_ids:
            if id <= target.last_id:
                finished.pop(id, None)
        free_empty_tables(finished)
        self._passed_late_ids = [id for id in self._passed_late_ids if id > target.last_id]
        self._forgotten_count += before - self.count_finished()

    def _pass_finished(self) -> None:
        # The last id L moves over the new records that finished without a gap, and over raises of L that follow them.
        unread, raises, finished = self._unpassed_ids, self._floor_raises, self._finished
        while True:
            if finished:
                passed = list(takewhile(finished.__contains__, unread))
                if passed:
                    del unread[: len(passed)]
                    self._append_passed(passed, [finished.pop(id) for id in passed])
            if not (raises and unread and unread[0] == raises[0]):
                return
            self.last_id = raises.popleft()
            del unread[0]

    def _append_passed(self, ids: list[int], event_ids: list[bytes]) -> None:
        self.last_id = ids[-1]
        self.passed_count += len(ids)
        self._passed_ids += ids
        self._passed_event_ids += event_ids

    def _find_passed_index(self, record_id: int) -> int | None:
        at = bisect_left(self._passed_ids, record_id)
        return at if at < len(self._passed_ids) and self._passed_ids[at] == record_id else None

    def _page_for(self, last_id: int) -> tuple[Page, int]:
        # The result is the newest page that may be saved with `last_id`, and the number of new records read up to it.
        # The page's snapshot may be saved if all its late records up to that id are finished, as in all pages before
        # it.
        # The floor that is saved is the page's own. A later floor may lie above a late record that is unfinished, and
        # the next owner searches for late records only above the saved floor.
        finished = self._finished
        while (
            self.late_pages
            and not self.late_pages[0].is_cut
            and all(id in finished for id in self.late_pages[0].unfinished_ids)
        ):
            self._passed_late_ids.extend(self.late_pages.popleft().unfinished_ids)
        for late in self.late_pages:
            if late.is_cut or any(id <= last_id and id not in finished for id in late.unfinished_ids):
                return late.page_before, late.read_before
        return self.page, self.read_count
