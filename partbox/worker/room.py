"""How many new records a poll may bring, per partition: the window, the brake, and the bytes.

The partitions that have a backlog share a page among themselves, so that a few of them are drained as fast as all.
"""

from collections.abc import Sequence

from partbox.db.blocking import Row
from partbox.worker.partition import Partition

LEAST_SHARE = 40
# How many shares a partition is read ahead of its saved cursor. With 2 the reader waits for saves: on a backlog, 256
# partitions in one process, 2 gave 173,000 events a second, 3 gave 217,000, 4 gave 240,000, 6 gave 228,000.
AHEAD = 4
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
        self._shares = (LEAST_SHARE, LEAST_SHARE)  # of a page: a partition's that has no backlog, and one's that has

    def learn(self, rows: Sequence[Row]) -> None:
        """Follow the size of records, by a running mean over a sample of each page."""
        sample = rows[:: max(1, len(rows) // SAMPLE)]
        if sample:
            mean = sum(OVERHEAD + len(row[7] or row[8] or b"") for row in sample) / len(sample)
            self._mean = max(mean, 0.75 * self._mean + 0.25 * mean) if self._mean < GUESS else mean

    def of(self, partitions: list[Partition]) -> list[int]:
        """The room of each of the partitions that are read together, now."""
        if not partitions:
            return []
        backlog = sum(partition.cursor.full for partition in partitions)
        self._shares = (self._share(len(partitions)), self._share(backlog))
        rooms = [self._one(partition) for partition in partitions]
        return self._within_bytes(rooms, sum(partition.progress.unsaved() for partition in partitions))

    def full(self, partition: Partition) -> bool:
        """Whether the partition is read as far ahead of its saved cursor as it may be."""
        return partition.progress.unsaved() >= self._window_of(partition)

    def bound(self, partitions: list[Partition]) -> int:
        """So many records of these may be read and not yet passed by their saved cursors."""
        return sum(map(self._window_of, partitions))

    def _share(self, partitions: int) -> int:
        return max(LEAST_SHARE, self._page // max(1, partitions))

    def _window_of(self, partition: Partition) -> int:
        return min(AHEAD * self._shares[partition.cursor.full], self._window, self._max_parked)

    def _one(self, partition: Partition) -> int:
        if partition.stopping:
            return 0
        progress = partition.progress
        unfinished = progress.read_new - progress.passed
        brake = self._max_parked - partition.open_rows - unfinished
        if brake < len(partition.ahead):  # parked before, and open: they only run once they are met
            brake = max(brake, sum(id > partition.cursor.last_id for id in partition.ahead))
        ahead = self._window_of(partition) - progress.unsaved()
        return max(0, min(self._shares[partition.cursor.full], ahead, brake))

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
