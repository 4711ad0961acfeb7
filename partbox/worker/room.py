"""How many new records a poll may bring, per partition: the window, the brake, and the bytes."""

from collections.abc import Sequence

from partbox.db.blocking import Row
from partbox.worker.partition import Partition

LEAST_SHARE = 40
GUESS = 65_536  # bytes of a record before any was seen: the first page is small rather than huge
OVERHEAD = 1_000  # bytes of an event in memory, beside its payload
SAMPLE = 16


class Room:
    """The bounds of one process. `page`, `window`, `max_parked` count records, `window_bytes` bytes."""

    def __init__(self, page: int, window: int, max_parked: int, window_bytes: int) -> None:
        self._page = page
        self._window = window
        self._max_parked = max_parked
        self._window_bytes = window_bytes
        self._mean = float(GUESS)

    def learn(self, rows: Sequence[Row]) -> None:
        """Follow the size of records, by a running mean over a sample of each page."""
        sample = rows[:: max(1, len(rows) // SAMPLE)]
        if sample:
            mean = sum(OVERHEAD + len(row[7] or row[8] or b"") for row in sample) / len(sample)
            self._mean = max(mean, 0.75 * self._mean + 0.25 * mean) if self._mean < GUESS else mean

    def share(self, owned: int) -> int:
        """What one partition may bring in one page."""
        return max(LEAST_SHARE, self._page // max(1, owned))

    def window(self, owned: int) -> int:
        """How far a partition may be read above its saved cursor."""
        return min(2 * self.share(owned), self._window, self._max_parked)

    def of(self, partitions: list[Partition]) -> list[int]:
        """The room of each partition now."""
        if not partitions:
            return []
        share, window = self.share(len(partitions)), self.window(len(partitions))
        rooms = [self._one(partition, share, window) for partition in partitions]
        return self._within_bytes(rooms, sum(partition.progress.unsaved() for partition in partitions))

    def _one(self, partition: Partition, share: int, window: int) -> int:
        if partition.stopping:
            return 0
        progress = partition.progress
        unfinished = progress.read_new - progress.passed
        return max(0, min(share, window - progress.unsaved(), self._max_parked - partition.open_rows - unfinished))

    def _within_bytes(self, rooms: list[int], unsaved: int) -> list[int]:
        left = int(self._window_bytes / self._mean) - unsaved
        wanted = sum(rooms)
        if wanted <= left:
            return rooms
        if left <= 0:
            # One event always passes, however large: else nothing would ever move.
            first = next((at for at, room in enumerate(rooms) if room), None) if unsaved == 0 else None
            return [1 if at == first else 0 for at in range(len(rooms))]
        return [min(room, max(1, room * left // wanted)) if room else 0 for room in rooms]
