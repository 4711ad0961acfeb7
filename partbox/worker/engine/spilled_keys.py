"""The spilled keys of one partition in memory: blocked keys whose later records wait in the log without rows. The rules
are in the module `partbox.protocol.spill`."""

from collections.abc import Mapping
from math import inf

from partbox.events import DeliveredEvent
from partbox.protocol.parking import Chain
from partbox.protocol.progress import Progress
from partbox.protocol.rows import RefilledKey, SpillStart
from partbox.protocol.spill import Spill
from partbox.worker.engine.key import Key, key_of


class SpilledKeys:
    """The keys of one partition that have left records in the log, and the spills that no save has yet.

    All methods need the engine's lock. `chains` has the blocking rows of each key. A key with `size` rows is spilled at
    its next new record."""

    def __init__(self, number: int, progress: Progress, chains: dict[Key, Chain], size: int) -> None:
        self._number = number
        self._progress = progress
        self._chains = chains
        self._size = size
        # A subset of all chains. A spilled chain stays there even without rows, because its key is blocked.
        self.chains: dict[Key, Chain] = {}
        self._unsaved: dict[Key, SpillStart] = {}

    def pass_record(self, event: DeliveredEvent, read_before: int) -> bool:
        """Return True if a new record of a blocked key needs no row, because the key has enough rows."""
        # No spill starts up to the id `read_before`: such a record may have run before a lost connection (S1).
        # A key whose names are shortened cannot be found in the log by its names, so it is never spilled.
        key = key_of(event)
        if key != (event.aggregate_type, event.aggregate_id):
            return False
        chain = self._chains[key]
        if chain.spill is None:
            if len(chain.rows) < self._size or event.id <= read_before:
                return False
            chain.spill = Spill(event.id, self._size, self._progress.last_id_for_good)
            self.chains[key] = chain
            self._unsaved[key] = SpillStart(self._number, key[0], key[1], event.id)
        return chain.spill.pass_record(event.id, len(chain.rows))

    def take_unsaved(self) -> list[SpillStart]:
        """Remove and return the spills that the next save must write."""
        unsaved, self._unsaved = self._unsaved, {}
        return list(unsaved.values())

    def note_saved(self) -> list[Key]:
        """Record that a save of the partition is committed. Return the keys that may need a refill now."""
        # Each save may consume more of the records that wait in the log.
        for chain in self.chains.values():
            assert chain.spill is not None
            chain.spill.consumed_id = self._progress.last_id_for_good
        return [*self.chains]

    def note_refilled(self, key: Key, refilled: RefilledKey) -> None:
        """Move the start of the spill of a key behind the records that have rows now, or end the spill."""
        spill = self.chains[key].spill
        assert spill is not None
        if refilled.from_id is None:
            self._end(key)
        else:
            spill.note_refilled(refilled.from_id, is_end=refilled.is_end)

    def load(self, stored: Mapping[Key, int]) -> None:
        """Replace the spills in memory by the stored ones, except those that are not saved yet."""
        for key in list(self.chains):
            if key not in stored and key not in self._unsaved:
                self._end(key)
        for key, from_id in stored.items():
            chain = self.chains[key] = self._chains.setdefault(key, Chain())
            if chain.spill is None:
                chain.spill = Spill(from_id, self._size, self._progress.last_id_for_good)

    def find_first_id(self) -> float:
        """Return the first id from which on records of some key may wait in the log without rows, or infinity."""
        return min((each.spill.from_id for each in self.chains.values() if each.spill), default=inf)

    def _end(self, key: Key) -> None:
        chain = self.chains.pop(key)
        chain.spill = None
        if not chain.rows:
            del self._chains[key]
