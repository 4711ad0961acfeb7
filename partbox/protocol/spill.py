"""Spills: how a key that cannot make progress costs a bounded number of rows, however many events wait behind it.

Each record of a blocked key is parked in a row of its own, until the key has `size` rows. The next *new* record of the
key starts a spill: one row for the key, with the id `from_id` of that record. From then on the cursor passes new
records of the key without a row. The log keeps them, and they are read again, in pages, when the key makes progress.

**Rules.** A record is new if its id is above the last id of the cursor before its page.

S1  A spill starts at a new record that was not read before a lost connection either. So every record of the key that
    the cursor has passed, or that has run, has a smaller id.
S2  Only new records from `from_id` on pass without a row. A late record is parked as usual, because a refill under an
    older saved cursor may have moved `from_id` past its id.
S3  No record from `from_id` on runs, with or without a row. So none of them is done.
S4  A *refill* reads the next records of the key from `from_id` on that the saved cursor has consumed for good, inserts
    rows for records that have none, and moves `from_id` behind them.
S5  A refill that finds no more records ends the spill, if that saved cursor has consumed the last record that passed
    without a row. Otherwise new records of the key are parked again, and wait by S3, until a later refill ends the
    spill. If the key has too many rows before that, new records pass again."""

from dataclasses import dataclass


@dataclass(slots=True)
class Spill:
    """The records of a blocked key, from one id on, that have no rows and wait in the log."""

    # `size` is the number of rows at which new records of the key pass without a row.

    from_id: int
    size: int
    # The cursor that is saved has consumed each new record of the partition up to this id for good.
    consumed_id: int
    # True if new records pass without a row.
    is_passing: bool = True
    # The last record that passed without a row in this process.
    last_passed_id: int = 0

    def holds_back(self, record_id: int) -> bool:
        """Return True if this record of the key must not run yet (S3)."""
        return record_id >= self.from_id

    def pass_record(self, record_id: int, row_count: int) -> bool:
        """Return True if a new record of the key passes without a row. The key has `row_count` rows."""
        if record_id < self.from_id or not (self.is_passing or row_count >= self.size):
            return False
        self.is_passing, self.last_passed_id = True, record_id
        return True

    def may_end(self) -> bool:
        """Return True if a refill that finds no more records may end the spill (S5)."""
        return self.last_passed_id <= self.consumed_id

    def has_unread(self) -> bool:
        """Return True if the saved cursor may have consumed records that have no row (S4)."""
        return self.from_id <= self.consumed_id

    def note_refilled(self, from_id: int, *, is_end: bool) -> None:
        """Record that a refill has moved the start of the spill. `is_end`: it has found fewer records than wanted."""
        self.from_id = from_id
        if is_end:
            self.is_passing = False
