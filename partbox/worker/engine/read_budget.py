"""The number of new records that a poll may bring, per partition: window, brake, and bytes (DESIGN 6 and 7).

The partitions that have a backlog share a page among themselves, so that a few of them are drained as fast as all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from partbox.events.record import Row, row_bytes
from partbox.protocol import cursor
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.phase import Phase

LEAST_SHARE = 40
# How many shares a partition is read ahead of its saved cursor. With 2 the reader waits for saves: on a backlog, 256
# partitions in one process, 2 gave 173,000 events a second, 3 gave 217,000, 4 gave 240,000, 6 gave 228,000.
SHARES_AHEAD = 4
GUESSED_BYTES = 65_536  # bytes of a record before any was seen: the first page is small rather than huge
EVENT_OVERHEAD = 1_000  # bytes of an event in memory, beside its payload
SAMPLE = 16


class ReadBounds(NamedTuple):
    """The settings that bound reading: `window_bytes` counts bytes, the others count records.

    `max_waiting` is of the whole subscription, `max_parked` and `window` of one partition.
    """

    page: int
    window: int
    max_parked: int
    window_bytes: int
    max_waiting: int = 1 << 40


UNBOUNDED = ReadBounds(1 << 40, 1 << 40, 1 << 40, 1 << 60)


class ReadBudget:
    """The records and bytes that one process may still read, within its bounds. `is_starved`: the bytes are used up."""

    def __init__(self, bounds: ReadBounds) -> None:
        self._page, self._window, self._max_parked, self._window_bytes, max_waiting = bounds
        self._waiting_share = max(1, max_waiting // 256)  # rows of one of 256 partitions that may wait in any case
        self._waiting_left = 0  # rows that may wait in this process beside those that do
        self._mean_bytes = float(GUESSED_BYTES)
        self._shares = (LEAST_SHARE, LEAST_SHARE)  # of a page: a partition's that has no backlog, and one's that has
        self._windows = (self._window_for(LEAST_SHARE), self._window_for(LEAST_SHARE))
        self._max_records: int | None = None  # records of a poll, where fewer than the page were too many
        self._rotation = 0
        self._left = 0  # bytes, when they were last reckoned, without what was taken since
        self._late_cap: int | None = None  # late records of a poll, the same
        self.is_starved = False

    def learn_size(self, rows: Sequence[Row]) -> None:
        """Follow the size of records as a page has them, by a running mean over a sample of it."""
        sample = rows[:: max(1, len(rows) // SAMPLE)]
        if sample:
            mean = sum(EVENT_OVERHEAD + row_bytes(row) for row in sample) / len(sample)
            self._mean_bytes = (
                max(mean, 0.75 * self._mean_bytes + 0.25 * mean) if self._mean_bytes < GUESSED_BYTES else mean
            )

    def left(self, owned: Iterable[Partition]) -> int:
        """Count the bytes that may still be read, beside what all these hold, and the rows that may wait. Lock held."""
        records = held_bytes = waiting_left = 0
        for partition in owned:
            if partition.phase is not Phase.LOST:
                waiting_left += self._waiting_share - partition.parked.waiting
                progress = partition.progress
                unsaved = progress.unsaved()
                records += max(unsaved, progress.waiting()) if progress.late else unsaved
                held_bytes += partition.payload_bytes.total
        self._waiting_left = waiting_left
        left = self._left = int(self._window_bytes - records * self._mean_bytes) - held_bytes
        self.is_starved = left <= 0
        return left

    def reserve(self, records: int, owned: Iterable[Partition]) -> bool:
        """Count so many records more, if there are bytes for them; True then. Lock held.

        What all partitions hold is counted anew only where it may matter: that takes longer than a small page.
        """
        bytes = int(records * self._mean_bytes)
        if bytes > self._left and bytes > self.left(owned):
            return False
        self._left -= bytes
        return True

    def share_rooms(self, partitions: list[Partition], left: int) -> list[int]:
        """The room of each of the partitions that are read together, while `left` bytes are left. Lock held."""
        if not partitions:
            return []
        backlog = sum(partition.cursor.full for partition in partitions)
        self._shares = (self._share(len(partitions)), self._share(backlog))
        self._windows = (self._window_for(self._shares[False]), self._window_for(self._shares[True]))
        rooms = [self.room_of(partition) for partition in partitions]
        most = (
            max(1, int(left / self._mean_bytes)) if left > 0 else 0
        )  # one always passes: else nothing would ever move
        return self._scale_rooms(rooms, most if self._max_records is None else min(most, self._max_records))

    def is_enough(self, partitions: Sequence[Partition], room: int) -> bool:
        """True if so much room is half a page, or less than that is left to run in these partitions. Lock held."""
        half = self._page // 2
        return room >= half or sum(partition.progress.count_in_flight() for partition in partitions) < half

    def cap(self, partitions: int, left: int) -> int:
        """The most late records of each that a poll of so many may bring, whatever the room (EVIDENCE A4)."""
        return min(self._late_cap or cursor.MAX_LATE, max(LEAST_SHARE, int(left / self._mean_bytes / partitions)))

    def bytes_for_payloads(self, records: int, left: int) -> int:
        """The bytes, of `left`, for large payloads after so many records: half of what these leave, at least 1."""
        return max(int(left - records * self._mean_bytes) // 2, 1) if left > 0 else 0

    def full(self, partition: Partition) -> bool:
        """True if the partition is read as far ahead of its saved cursor as its window allows. Lock held."""
        return partition.progress.unsaved() >= self._window_of(partition)

    def greedy(self, partition: Partition, left: int) -> bool:
        """True if it holds more bytes of large payloads than the `left` for all: it gets no more of them. Lock held."""
        return partition.payload_bytes.total > max(left, 0)

    def awaits_bytes(self, partition: Partition) -> bool:
        """True if the payload of its next record did not fit, and would not in the bytes that are left. Lock held."""
        return partition.max_records == 1 and self.greedy(partition, self._left)

    def bound(self, partitions: list[Partition]) -> int:
        """The most records of these partitions that may be read and not passed by their saved cursors."""
        return sum(map(self._window_of, partitions))

    def note_timeout(self, rooms: Sequence[int]) -> None:
        """Halve what the next poll asks for, down to one record: one with these rooms took too long."""
        self._max_records = max(1, sum(rooms) // 2)
        self._late_cap = max(1, (self._late_cap or cursor.MAX_LATE) // 2)

    def came(self) -> None:
        """Let rooms that were halved grow again, by a quarter: a poll came in time."""
        if self._max_records is not None:
            self._max_records = _grow(self._max_records, self._page)
        if self._late_cap is not None:
            self._late_cap = _grow(self._late_cap, cursor.MAX_LATE)

    def _share(self, partitions: int) -> int:
        return max(LEAST_SHARE, self._page // max(1, partitions))

    def _window_for(self, share: int) -> int:
        return min(SHARES_AHEAD * share, self._window, self._max_parked)

    def _window_of(self, partition: Partition) -> int:
        return self._windows[partition.cursor.full]

    def room_of(self, partition: Partition) -> int:
        """The room of one partition, by the shares that were reckoned last; the bytes apart. Lock held."""
        return self._bounded_room(partition, self._shares[partition.cursor.full], self._window_of(partition))

    def widest(self, partition: Partition) -> int:
        """The room of one partition that has more of the records of a page than its share. Lock held."""
        window = min(self._window, self._max_parked)
        return self._bounded_room(partition, window, window)

    def _bounded_room(self, partition: Partition, share: int, window: int) -> int:
        if partition.is_stopping:
            return 0
        progress = partition.progress
        unfinished = progress.read_new - progress.passed
        parked = partition.parked
        brake = self._max_parked - parked.open - unfinished
        # A partition may have more than its share of the rows that wait, while others of the process have less.
        waiting = max(self._waiting_share - parked.waiting, self._waiting_left) - unfinished
        ahead_ids = parked.ahead
        if brake < len(ahead_ids):  # parked before, and open: they only run once they are met (EVIDENCE B6)
            brake = max(brake, sum(id > partition.cursor.last_id for id in ahead_ids))
        unsaved = progress.unsaved()
        ahead = window - unsaved
        if ahead <= 0 and not partition.cursor.full and unsaved < self._window:
            ahead = 1  # polled for none it would have a backlog, that might not be there, and a wider window
        if partition.max_records is not None:
            share = 0 if self.awaits_bytes(partition) else min(share, partition.max_records)
        return max(0, min(share, ahead, brake, waiting))

    def _scale_rooms(self, rooms: list[int], most: int) -> list[int]:
        """Scale the rooms to sum to `most`. The remainder goes to other partitions each time: none starves."""
        wanted = sum(rooms)
        if wanted <= most:
            return rooms
        shares = [room * most // wanted for room in rooms]
        rest, rotation = most - sum(shares), self._rotation
        for step in range(len(rooms)):
            at = (rotation + step) % len(rooms)
            if rest and shares[at] < rooms[at]:
                shares[at] += 1
                rest -= 1
                self._rotation = at + 1
        return shares


def _grow(most: int, whole: int) -> int | None:
    """The next bound; None where it is one no longer."""
    more = most + most // 4 + 1
    return more if more < whole else None
