"""Keeps count of what the handlers got, and judges it: each order's steps in order, none lost, none made up."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from partbox.demo.recorder import ENTRY, Entry


@dataclass(slots=True)
class _Owner:
    """Who delivered in a partition last; `after_kill`: the one before was killed, and may have left work unsaved."""

    epoch: int
    pid: int
    after_kill: bool = False


class Ledger:
    """Reads the recorders' file as it grows.

    `delivered` counts events, `duplicates` further deliveries of the same; `unexplained` are those of them that no kill
    explains. Out of order is a step before the one it follows was seen, and a delivery by an owner that had been
    succeeded already. `phantoms` were published by transactions that were rolled back.
    """

    def __init__(self, path: Path) -> None:
        path.touch(0o600)
        self._file = path.open("rb")
        self._rest = b""
        self._seen = bytearray()  # by order: one bit a step
        self._last = bytearray()  # by order: the step that was delivered last
        self._owners: dict[int, _Owner] = {}
        self._killed: set[int] = set()
        self.delivered = self.duplicates = self.unexplained = self.out_of_order = self.phantoms = 0

    def close(self) -> None:
        self._file.close()

    def killed(self, pid: int) -> None:
        """This process is about to be killed: what it did not save will be delivered again."""
        self._killed.add(pid)

    def read(self) -> list[Entry]:
        """What was delivered for the first time since the last reading."""
        data = self._rest + self._file.read()
        whole = len(data) - len(data) % ENTRY.size
        self._rest = data[whole:]
        entries = (Entry(*fields) for fields in ENTRY.iter_unpack(data[:whole]))
        return [entry for entry in entries if self._judge(entry)]

    def compare(self, orders: Iterable[tuple[int, int]]) -> tuple[int, int, int]:
        """Against the shop's own table, `(order, step)`: how many events were published, lost, and made up."""
        published = lost = delivered = 0
        for order, step in orders:
            self._reach(order)
            happened = (1 << step) - 1
            published += step
            lost += (happened & ~self._seen[order]).bit_count()
            delivered += (happened & self._seen[order]).bit_count()
        return published, lost, self.delivered - delivered

    def _judge(self, entry: Entry) -> bool:
        """Count it; whether it is a first delivery."""
        if entry.declined:
            self.phantoms += 1
            return False
        self._reach(entry.order)
        current, after_kill = self._own(entry)
        if not current or entry.step > self._last[entry.order] + 1:
            self.out_of_order += 1
        self._last[entry.order] = entry.step
        bit = 1 << entry.step - 1
        if self._seen[entry.order] & bit:
            self.duplicates += 1
            self.unexplained += not after_kill
            return False
        self._seen[entry.order] |= bit
        self.delivered += 1
        return True

    def _own(self, entry: Entry) -> tuple[bool, bool]:
        """Whether its process owned the partition as far as we know, and whether the owner before was killed."""
        owner = self._owners.get(entry.partition)
        if owner is None or entry.epoch > owner.epoch:
            after_kill = owner is not None and owner.pid in self._killed
            owner = self._owners[entry.partition] = _Owner(entry.epoch, entry.pid, after_kill)
        return entry.epoch == owner.epoch, owner.after_kill

    def _reach(self, order: int) -> None:
        missing = order + 1 - len(self._seen)
        if missing > 0:
            self._seen.extend(bytes(missing))
            self._last.extend(bytes(missing))
