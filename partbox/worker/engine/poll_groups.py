"""Groups of the partitions that may be polled, by the way in which they are.

A quick poll is of those caught up alone: one that is fresh, cut, behind or drains would lose records (⛨ DESIGN 4,
EVIDENCE H2).
"""

from collections.abc import Sequence

from partbox.protocol.cursor import ALONE, Cursor, ReadMode
from partbox.protocol.horizon import Page
from partbox.protocol.quick_poll import bits
from partbox.worker.engine.partition import Partition


class PollGroups:
    """The partitions that may be read now: `fresh` ones alone, the others `together`, of which some are `behind`.

    `caught_up`, by number, have all that the shared page sees. `cut`: a page is cut, perhaps of one that awaits bytes.
    Made anew after a full poll, when a partition comes, goes or drains, and at each look while a page is cut.
    """

    __slots__ = ("behind", "bits", "caught_up", "cut", "fresh", "together")

    def __init__(self, readable: Sequence[Partition], *, cut: bool = False) -> None:
        self.cut = cut
        self.fresh = [each for each in readable if each.cursor.mode in ALONE]
        self.together = [each for each in readable if each.cursor.mode not in ALONE]
        self.caught_up = {each.number: each for each in self.together if each.cursor.mode is ReadMode.CAUGHT_UP}
        self.behind = [each for each in self.together if each.cursor.mode is not ReadMode.CAUGHT_UP]
        self.bits = bits(self.caught_up)

    def stay(self, shared: Page) -> None:
        """Leave those that are behind at this page, from which quick polls take the others on."""
        for each in self.behind:
            each.cursor.stay(shared)

    def have_backlogs(self) -> bool:
        """True if each that is behind has more to read than the last poll had room for, and none is in a cut page."""
        return all(each.cursor.full and each.cursor.cut is None for each in self.behind)

    def backlogs(self) -> int:
        """The number of those read together that have more to read than the last poll had room for."""
        return sum(each.cursor.full for each in self.together)

    def in_lockstep(self) -> bool:
        """True if all that are read together share a page."""
        return all(each.cursor.lockstep for each in self.together)


def cursors_of(partitions: Sequence[Partition]) -> list[Cursor]:
    """The reading positions of these, which the poller's thread alone moves."""
    return [each.cursor for each in partitions]
