"""One poll of the log: the snapshot at which it was read, and the bounds of ids of records that appear after it."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Page:
    """The page read at `snapshot` (text): a record that it does not see will have an id above one of these bounds.

    `settled`: for transactions that the snapshot could not list. `listed`: (xid, bound) of each that it lists. A saved
    cursor has its floor for all of them. `whole`: no record that the snapshot sees lay above the poll's ceiling.
    """

    snapshot: str
    settled: int
    listed: tuple[tuple[int, int], ...] = ()
    whole: bool = False

    @cached_property
    def floor(self) -> int:
        """No record with an id at or below this will become visible after the page."""
        return min([self.settled, *(bound for _, bound in self.listed)])
