"""The bytes that one partition holds in memory beside its small new records: large ones, and parked ones that run."""

from collections.abc import Iterable


class Weight:
    """Sizes by record id, from when a record is read until it is finished, parked, or has stood in the way too long.

    Under the lock of the holdings, as all of a partition.
    """

    __slots__ = ("bytes", "sizes")

    def __init__(self) -> None:
        self.bytes = 0
        self.sizes: dict[int, int] = {}

    def add(self, record_id: int, size: int) -> None:
        """This record has so many bytes."""
        self.bytes += size - self.sizes.get(record_id, 0)
        self.sizes[record_id] = size

    def drop(self, record_ids: Iterable[int]) -> None:
        """These are not held any more, if they were."""
        for id in record_ids:
            self.bytes -= self.sizes.pop(id, 0)
