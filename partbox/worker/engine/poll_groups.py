"""Groups of partitions by the kind of poll that reads them. Only partitions that are caught up take part in a quick
poll, in which all others would lose records."""

from collections.abc import Sequence

from partbox.protocol.cursor import ALONE, Cursor, ReadMode
from partbox.protocol.horizon import Page
from partbox.protocol.quick_poll import to_bits
from partbox.worker.engine.partition import Partition


class PollGroups:
    """The partitions that may be polled, grouped by how they are polled."""

    # `fresh` partitions are polled alone, others `together`, as `caught_up` or `behind`. `has_cut_page` is True if an
    # owned partition is in a cut page. Build the groups again after a full poll or a change of partitions, and at each
    # look while `has_cut_page`.

    __slots__ = ("behind", "caught_up", "caught_up_bits", "fresh", "has_cut_page", "together")

    def __init__(self, readable: Sequence[Partition], *, cut: bool = False) -> None:
        self.has_cut_page = cut
        self.fresh = [each for each in readable if each.cursor.mode in ALONE]
        self.together = [each for each in readable if each.cursor.mode not in ALONE]
        self.caught_up = {each.number: each for each in self.together if each.cursor.mode is ReadMode.CAUGHT_UP}
        self.behind = [each for each in self.together if each.cursor.mode is not ReadMode.CAUGHT_UP]
        self.caught_up_bits = to_bits(self.caught_up)

    def keep_pages(self, shared: Page) -> None:
        """Keep the current page of each partition that is behind as the start of its next poll."""
        # The `shared` page is kept as their own base before a quick poll moves the other partitions to a later page.
        for each in self.behind:
            each.cursor.keep_page(shared)

    def have_backlogs(self) -> bool:
        """Return True if every partition that is behind has more unread records than fit on one page."""
        # The page is the last page of the partition.
        # None of the partitions may be in a cut page.
        return all(each.cursor.may_have_backlog and each.cursor.cut_page is None for each in self.behind)

    def count_backlogs(self) -> int:
        """Return the number of partitions that have more unread records than fit on one page."""
        # The page is the last page of the partition.
        # Only the partitions polled together (in `together`) count.
        return sum(each.cursor.may_have_backlog for each in self.together)

    def are_in_lockstep(self) -> bool:
        """Return True if all partitions that are polled together were last read from the same page."""
        # The partitions are in `together`, and the page is the one that they share.
        return all(each.cursor.is_in_lockstep for each in self.together)


def cursors_of(partitions: Sequence[Partition]) -> list[Cursor]:
    # Only the poller's thread moves these cursors.
    return [each.cursor for each in partitions]
