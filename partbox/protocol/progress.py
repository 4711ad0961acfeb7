"""Records of one partition that were read, those of them that are finished, and the cursor that may be saved.

The save rule is in the essay of `partbox.protocol`.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from partbox.protocol.horizon import Page

MAX_LATE_PAGES = 64

RecordKey = tuple[int, bytes]
"""The id of a record, and its event id, empty for what is parked."""


def free_empty_tables(*tables: dict[Any, Any]) -> None:
    """Free the tables of those of these dicts that are empty.

    A dict from which all is taken piece by piece keeps the table that it had at its largest, until it is filled again.
    A process has several dicts of each of 256 partitions, of which one after the other is large for a moment, when many
    late records come or an outage parks them: together that was up to 300 kB of each.
    """
    for table in tables:
        if not table:
            table.clear()


@dataclass(slots=True)
class LatePage:
    """A page that brought late records: the page before it, itself, and the unfinished ones.

    `read_before` counts the new records of all pages before it.
    """

    before: Page
    page: Page
    unfinished: set[int]
    read_before: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class SaveTarget:
    """A cursor that may be saved; for `Progress.saved`, how many new records it passes, and how many of them for good.

    The others were read in later pages than the cursor's, and some may be invisible in its snapshot: from there they
    would be read again, as late ones.
    """

    page: Page
    last_id: int
    passed: int
    for_good: int


@dataclass(slots=True)
class Progress:
    """The progress of one partition since it was claimed at `page` and `last_id`.

    What is finished and not saved is kept with its event id (empty for what is parked), so that after a lost connection
    a record that is read again can be told from a new one under the same id. Nearly all of it is finished in the order
    in which it was read, and goes from the head of `_unread` to the end of `_passed` at once; `_finished` has the rest.
    """

    page: Page
    last_id: int
    late: deque[LatePage] = field(default_factory=deque)
    read_new: int = 0
    passed: int = 0
    saved_passed: int = 0
    _passed_for_good: int = 0
    _forgotten: int = 0
    _unread: list[int] = field(default_factory=list)
    _finished: dict[int, bytes] = field(default_factory=dict)  # new ones out of turn, and late ones
    _passed: list[int] = field(default_factory=list)  # new ones at or below `last_id`, in order
    _passed_event_ids: list[bytes] = field(default_factory=list)  # their event ids; two lists are cheaper than pairs
    _passed_late: list[int] = field(default_factory=list)
    _floor_raises: deque[int] = field(default_factory=deque)

    def take_page(self, page: Page, late: Sequence[int], new: list[int], raised_to: int = 0) -> None:
        """An uncut page came: late ids, new ids in order, and the id that L is raised to after it (0: not)."""
        if late or self.late:
            self.take_piece(page, late, last=True)
        else:
            self.page = page
        self._unread.extend(new)
        self.read_new += len(new)
        # A raise stands in the queue like a record that is finished already; no record can have its id: it is a floor.
        if raised_to and self._floor_raises and self._unread and self._unread[-1] == self._floor_raises[-1]:
            self._unread[-1] = self._floor_raises[-1] = raised_to
        elif raised_to:
            self._unread.append(raised_to)
            self._floor_raises.append(raised_to)

    def take_piece(self, page: Page, late: Iterable[int], last: bool) -> None:
        """A piece of a cut page came; all pieces belong to the page of the first one."""
        ids = set(late)
        if self.late and self.late[-1].cut:
            self.late[-1].unfinished |= ids
            self.late[-1].cut = not last
        elif ids or not last:
            self.late.append(LatePage(self.page, page, ids, self.read_new, not last))
            if len(self.late) > MAX_LATE_PAGES:
                newest, older = self.late.pop(), self.late.pop()
                late = older.unfinished | newest.unfinished
                self.late.append(LatePage(older.before, newest.page, late, older.read_before, newest.cut))
        if last:
            self.page = page

    def finish(self, ids: list[int], event_ids: list[bytes]) -> None:
        """Note these as finished."""
        count, unread = len(ids), self._unread
        if count and unread[:count] == ids:  # no record has the id of a raise
            del unread[:count]
            self._append_passed(ids, event_ids)
        else:
            self._finished.update(zip(ids, event_ids, strict=True))

    def unfinish(self, record_id: int) -> None:
        """Take back that it is finished: its transaction was rolled back, and it is to be read anew."""
        self._finished.pop(record_id, None)
        if (at := self._passed_index(record_id)) is not None:
            del self._passed[at], self._passed_event_ids[at]

    def refinish(self, record_id: int, event_id: bytes) -> None:
        """Replace the way in which it is finished, if it is: it was parked before, and is done now."""
        if record_id in self._finished:
            self._finished[record_id] = event_id
        elif (at := self._passed_index(record_id)) is not None:
            self._passed_event_ids[at] = event_id

    def has_finished(self, record_id: int) -> bool:
        """True if it is finished and not saved."""
        return record_id in self._finished or self._passed_index(record_id) is not None

    def count_finished(self) -> int:
        """The number of records that are finished and not saved."""
        return len(self._finished) + len(self._passed)

    def unfinished(self) -> list[int]:
        """Every id read and not finished."""
        late = (id for page in self.late for id in page.unfinished)
        return [id for id in (*late, *self._unread) if id not in self._finished and id not in self._floor_raises]

    def done(self) -> list[RecordKey]:
        """(id, event id) of each record that is done and not saved; parked ones are not among them."""
        passed = zip(self._passed, self._passed_event_ids, strict=True)
        return [pair for pair in (*passed, *self._finished.items()) if pair[1]]

    def unsaved(self) -> int:
        """The number of new records read above the saved last id."""
        return self.read_new - self.saved_passed

    def read_id(self) -> int:
        """The highest id of what was read."""
        return max(self.last_id, *self._unread[-1:], max(self._finished, default=0))

    def count_in_flight(self) -> int:
        """The number of new records read and not finished; too low by the number of late ones that are finished."""
        return len(self._unread) - len(self._floor_raises) - len(self._finished)

    def count_finished_ever(self) -> int:
        """The number of records that have been finished since it was claimed."""
        return self._forgotten + self.count_finished()

    def waiting(self) -> int:
        """The number of records, new and late, read and not finished."""
        late = sum(len(page.unfinished) for page in self.late) + len(self._passed_late)
        return max(0, len(self._unread) - len(self._floor_raises) + late - len(self._finished))

    def next_to_finish(self, taken: Container[int] = ()) -> int | None:
        """The first new id that is neither finished nor taken: if it finishes next, the save passes it for good.

        None if there is none, or while a late record is unfinished.
        """
        self._pass_finished()
        if any(page.cut or not self._finished.keys() >= page.unfinished for page in self.late):
            return None
        skipped = (self._finished, self._floor_raises, taken)
        return next((id for id in self._unread if not any(id in each for each in skipped)), None)

    def target(self) -> SaveTarget:
        """The cursor that may be saved now, by the save rule."""
        self._pass_finished()
        page, read = self._page_for(self.last_id)
        return SaveTarget(page, self.last_id, self.passed, min(read, self.passed))

    def passes(self, target: SaveTarget, record_id: int) -> bool:
        """True if `target`, made just now, passes this new record, finished since the last save, for good."""
        for_good = target.for_good - self._passed_for_good
        return for_good > 0 and self._passed[for_good - 1] >= record_id

    def release_target(self) -> SaveTarget:
        """The cursor of a release: everything up to the highest finished id is finished, or parked with this save."""
        self._pass_finished()
        highest = max(self._finished, default=0)  # or it was passed
        return SaveTarget(self.page, max(self.last_id, highest), self.read_new, self.passed)

    def saved(self, target: SaveTarget) -> None:
        """`target` is committed: forget records that it passes. A late record above its last id is a new one for it."""
        finished = self._finished
        self.saved_passed, before = target.passed, self.count_finished()
        more = max(0, target.for_good - self._passed_for_good)
        del self._passed[:more], self._passed_event_ids[:more]
        self._passed_for_good += more
        for id in self._passed_late:
            if id <= target.last_id:
                finished.pop(id, None)
        free_empty_tables(finished)
        self._passed_late = [id for id in self._passed_late if id > target.last_id]
        self._forgotten += before - self.count_finished()

    def _pass_finished(self) -> None:
        unread, raises, finished = self._unread, self._floor_raises, self._finished
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
        """Note that these new ones are finished, and all before them."""
        self.last_id = ids[-1]
        self.passed += len(ids)
        self._passed += ids
        self._passed_event_ids += event_ids

    def _passed_index(self, record_id: int) -> int | None:
        """Its place among those that were passed."""
        at = bisect_left(self._passed, record_id)
        return at if at < len(self._passed) and self._passed[at] == record_id else None

    def _page_for(self, last_id: int) -> tuple[Page, int]:
        """N_k and F_k, and how many new records were read in the pages 1…k."""
        finished = self._finished
        while self.late and not self.late[0].cut and all(id in finished for id in self.late[0].unfinished):
            self._passed_late.extend(self.late.popleft().unfinished)
        for late in self.late:
            if late.cut or any(id <= last_id and id not in finished for id in late.unfinished):
                return late.before, late.read_before
        return self.page, self.read_new
