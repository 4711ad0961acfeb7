"""Groups of the partitions that may be polled, by the way in which they are."""

from collections.abc import Sequence

from partbox.protocol.quick_poll import bits
from partbox.worker.engine.partition import Partition


class PollGroups:
    """The partitions that may be read now: `fresh` ones alone, the others `together`, of which some are `behind`.

    `caught_up`, by number, have all that the shared page sees. Made anew after a full poll, and when a partition comes,
    goes or drains.
    """

    __slots__ = ("behind", "bits", "caught_up", "fresh", "together")

    def __init__(self, readable: Sequence[Partition]) -> None:
        self.fresh = [each for each in readable if each.cursor.fresh]
        self.together = [each for each in readable if not each.cursor.fresh]
        self.caught_up = {each.number: each for each in self.together if each.cursor.caught_up}
        self.behind = [each for each in self.together if not each.cursor.caught_up]
        self.bits = bits(self.caught_up)
