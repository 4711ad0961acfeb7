"""Limits on the new records that a poll may bring: the window, the brake, and bytes."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from partbox.events.record import Row, count_row_bytes
from partbox.protocol.cursor import LateLimits, usual_late_limits
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.phase import Phase

LEAST_SHARE = 40
# Shares that a partition is read ahead of its saved cursor. With 2 the reader waits for saves. On a backlog, 256
# partitions in one process, 2 gave 173,000 events a second, 3 gave 217,000, 4 gave 240,000, and 6 gave 228,000.
SHARES_AHEAD = 4
# Size of a record in bytes before any was read. A high guess makes the first page small.
GUESSED_BYTES = 65_536
# Bytes of an event in memory besides its payload.
EVENT_OVERHEAD = 1_000
SAMPLE = 16


class ReadBounds(NamedTuple):
    """The settings that limit how many records and bytes a worker reads ahead."""

    # All are in records except `window_bytes`. `window` and `max_parked` bound one partition, `max_waiting` all rows of
    # the subscription, and `spill_after` the rows of one key.

    page: int
    window: int
    max_parked: int
    window_bytes: int
    max_waiting: int = 1 << 40
    spill_after: int = 1 << 40


UNBOUNDED = ReadBounds(1 << 40, 1 << 40, 1 << 40, 1 << 60)


class ReadBudget:
    """The calculation of how many more records and bytes a process may read into memory.

    Methods that take partitions need the engine's lock."""

    def __init__(self, bounds: ReadBounds) -> None:
        self._page, self._window, self._max_parked, self._window_bytes, max_waiting, _ = bounds
        # Unfinished rows that one of 256 partitions may always have.
        self._row_share = max(1, max_waiting // 256)
        # Unfinished rows that this process may have in addition.
        self._rows_left = 0
        # Returns True if no handler could handle any event. Then reading stops at `max_parked` rows of a partition.
        self.is_held_up: Callable[[], bool] = lambda: True
        self.brakes = True
        self._mean_bytes = float(GUESSED_BYTES)
        # The share of a partition without a backlog, and of one with a backlog.
        self._shares = (LEAST_SHARE, LEAST_SHARE)
        self._windows = (self._window_for(LEAST_SHARE), self._window_for(LEAST_SHARE))
        # The most new records of a poll, if a whole page took too long.
        self._max_records: int | None = None
        self._rotation = 0
        # Bytes left when they were last counted, less the bytes reserved since.
        self._free_bytes = 0
        # The limits of a search for late records, if the usual ones took too long.
        self._late_limits: LateLimits | None = None
        self.is_starved = False

    def learn_size(self, rows: Sequence[Row]) -> None:
        """Update the estimated mean size of a record, in bytes, from a sample of these rows."""
        sample = rows[:: max(1, len(rows) // SAMPLE)]
        if sample:
            mean = sum(EVENT_OVERHEAD + count_row_bytes(row) for row in sample) / len(sample)
            self._mean_bytes = (
                max(mean, 0.75 * self._mean_bytes + 0.25 * mean) if self._mean_bytes < GUESSED_BYTES else mean
            )

    def count_free_bytes(self, owned: Iterable[Partition]) -> int:
        """Return the bytes that may still be read into memory."""
        # The number of further parked rows that this process may have is counted too.
        records = held_bytes = rows_left = 0
        for partition in owned:
            if partition.phase is not Phase.LOST:
                rows_left += self._row_share - partition.parked.row_count
                progress = partition.progress
                unsaved = progress.count_unsaved()
                records += max(unsaved, progress.count_waiting()) if progress.late_pages else unsaved
                held_bytes += partition.payload_bytes.total
        self._rows_left, self.brakes = rows_left, self.is_held_up()
        left = self._free_bytes = int(self._window_bytes - records * self._mean_bytes) - held_bytes
        self.is_starved = left <= 0
        return left

    def reserve(self, records: int, owned: Iterable[Partition]) -> bool:
        """Reserve free memory for a number of records of the mean size. Return False if they do not fit."""
        bytes = int(records * self._mean_bytes)
        # Count the bytes again only if it may matter: that takes longer than a small page.
        if bytes > self._free_bytes and bytes > self.count_free_bytes(owned):
            return False
        self._free_bytes -= bytes
        return True

    def share_rooms(self, partitions: list[Partition], free_bytes: int) -> list[int]:
        """Return how many new records each partition may read in the next poll."""
        # The partitions that have a backlog share a page, so a few of them are read as fast as all.
        # All records together must fit into the free bytes.
        if not partitions:
            return []
        backlog = sum(partition.cursor.may_have_backlog for partition in partitions)
        self._shares = (self._compute_share(len(partitions)), self._compute_share(backlog))
        self._windows = (self._window_for(self._shares[False]), self._window_for(self._shares[True]))
        rooms = [self.room_of(partition) for partition in partitions]
        # One record always passes. Otherwise nothing would ever move.
        most = max(1, int(free_bytes / self._mean_bytes)) if free_bytes > 0 else 0
        return self._scale_rooms(rooms, most if self._max_records is None else min(most, self._max_records))

    def is_enough(self, partitions: Sequence[Partition], room: int) -> bool:
        """Return True if a poll for `room` records is worth its cost."""
        # A poll is worth its cost if `room` is half a page, or if fewer than half a page of records are left to run in
        # these partitions.
        half = self._page // 2
        return room >= half or sum(partition.progress.count_in_flight() for partition in partitions) < half

    def compute_late_limits(self, partitions: int, free_bytes: int) -> LateLimits:
        """Return how many late records (committed after higher ids) a poll may read, and in how many ids it looks."""
        # The most late records of each partition depend on the number of partitions.
        records, ids = self._late_limits or usual_late_limits()
        return LateLimits(min(records, max(LEAST_SHARE, int(free_bytes / self._mean_bytes / partitions))), ids)

    def count_fitting(self, free_bytes: int) -> int:
        """Return how many records of the mean size fit into the free bytes, at least one."""
        return max(1, int(free_bytes / self._mean_bytes))

    def bytes_for_payloads(self, records: int, free_bytes: int) -> int:
        """Return how many bytes of large payloads a page of this many records may contain."""
        # The payloads may take half of the bytes that the records leave, but at least 1 while any bytes are free.
        return max(int(free_bytes - records * self._mean_bytes) // 2, 1) if free_bytes > 0 else 0

    def is_window_full(self, partition: Partition) -> bool:
        """Return True if some of the partition's records must be saved before more may be read."""
        # The partition was read as far ahead of its saved cursor as its window, the bound on unsaved records, allows.
        return partition.progress.count_unsaved() >= self._window_of(partition)

    def is_greedy(self, partition: Partition, free_bytes: int) -> bool:
        """Return True if the large payloads of the partition take more bytes than are free for all partitions."""
        # Such a partition gets no more.
        return partition.payload_bytes.total > max(free_bytes, 0)

    def awaits_bytes(self, partition: Partition) -> bool:
        """Return True if the partition cannot be read on because its next payload does not fit into memory."""
        # The payload of its next record did not fit before, and still would not.
        return partition.max_records == 1 and self.is_greedy(partition, self._free_bytes)

    def sum_windows(self, partitions: list[Partition]) -> int:
        """Return the maximum number of unsaved records that these partitions together may have."""
        return sum(map(self._window_of, partitions))

    def note_timeout(self, rooms: Sequence[int]) -> None:
        """Halve the maximum number of records of the next poll, because a poll took too long."""
        # The number of records is halved down to one record.
        self._max_records = max(1, sum(rooms) // 2)
        records, ids = self._late_limits or usual_late_limits()
        self._late_limits = LateLimits(max(1, records // 2), max(1, ids // 2))

    def note_poll_in_time(self) -> None:
        """Raise the maximum size of polls again, because a poll was answered in time."""
        # Slow polls had halved the limits.
        # The limits are raised by a quarter.
        if self._max_records is not None:
            self._max_records = _grow(self._max_records, self._page)
        if self._late_limits is not None:
            records, ids = map(_grow, self._late_limits, usual := usual_late_limits())
            self._late_limits = LateLimits(records or usual.records, ids or usual.ids) if records or ids else None

    def _compute_share(self, partitions: int) -> int:
        return max(LEAST_SHARE, self._page // max(1, partitions))

    def _window_for(self, share: int) -> int:
        return min(SHARES_AHEAD * share, self._window, self._max_parked)

    def _window_of(self, partition: Partition) -> int:
        return self._windows[partition.cursor.may_have_backlog]

    def room_of(self, partition: Partition) -> int:
        """Return the number of new records that one partition may read, without regard to bytes."""
        # The number follows the shares that were computed last.
        return self._bounded_room(
            partition, self._shares[partition.cursor.may_have_backlog], self._window_of(partition)
        )

    def find_unshared_room(self, partition: Partition) -> int:
        """Return how many new records a partition could read if it had a whole page to itself."""
        window = min(self._window, self._max_parked)
        return self._bounded_room(partition, window, window)

    def _bounded_room(self, partition: Partition, share: int, window: int) -> int:
        if partition.is_stopping:
            return 0
        progress = partition.progress
        unfinished = progress.read_count - progress.passed_count
        parked = partition.parked
        # A partition may have more than its share of rows while others have less.
        rows = max(self._row_share - parked.row_count, self._rows_left) - unfinished
        if self.brakes:
            rows = min(rows, self._max_parked - parked.open_count - unfinished)
        # Rows that were parked ahead of the cursor are counted, but run only after their records are read.
        if rows < len(parked.ahead_ids):
            rows = max(rows, sum(id > partition.cursor.last_id for id in parked.ahead_ids))
        unsaved = progress.count_unsaved()
        ahead = window - unsaved
        if ahead <= 0 and not partition.cursor.may_have_backlog and unsaved < self._window:
            # A poll for no records would report a backlog that may not exist, and widen the window.
            ahead = 1
        if partition.max_records is not None:
            share = 0 if self.awaits_bytes(partition) else min(share, partition.max_records)
        return max(0, min(share, ahead, rows))

    def _scale_rooms(self, rooms: list[int], most: int) -> list[int]:
        # All numbers of records are reduced so that their sum is `most`.
        # The remainder rotates, so that no partition starves.
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
    # None means that the limit reaches `whole` and is not needed any more.
    more = most + most // 4 + 1
    return more if more < whole else None
