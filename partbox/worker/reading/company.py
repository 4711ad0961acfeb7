"""The partitions of a process by how they are read: alone, in full, or quickly."""

from collections.abc import Iterable

from partbox.db.delivery.records import bits
from partbox.worker.state.partition import Partition


class Company:
    """Those that may be read now: `fresh` ones alone, the others `together`, of which some are `behind`.

    `caught_up`, by number, have all that the shared page sees. It holds until a page is read in full, or a partition
    comes, goes or drains: whoever brings that about makes another one.
    """

    __slots__ = ("behind", "bits", "caught_up", "fresh", "together")

    def __init__(self, readable: Iterable[Partition]) -> None:
        self.fresh: list[Partition] = []
        self.together: list[Partition] = []
        for partition in readable:
            (self.fresh if partition.cursor.fresh else self.together).append(partition)
        self.caught_up = {each.number: each for each in self.together if each.cursor.caught_up}
        self.behind = [each for each in self.together if not each.cursor.caught_up]
        self.bits = bits(self.caught_up)

    @property
    def reads_quickly(self) -> bool:
        """True if a quick poll is of use to some, and nobody has just come."""
        return bool(self.caught_up) and not self.fresh
