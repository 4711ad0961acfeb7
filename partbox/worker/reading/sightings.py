"""Tells observers what was read."""

import time
from collections.abc import Sequence
from typing import Any

from partbox.db.blocking import Row
from partbox.events.record import PLACE
from partbox.observe import Observers


class Sightings:
    """Of one process; `wanted` if an observer listens."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self.wanted = observers.hears("read")

    def tell(self, rows: Sequence[Row], asked_at: float, late_ids: int) -> None:
        """These were read by a poll that was sent then (monotonic seconds) and searched so many ids for late ones."""
        if self.wanted and rows:
            self._observers.read(_Records(rows), time.monotonic() - asked_at, late_ids)


class _Records(Sequence[tuple[int, int]]):
    """Partition and id of these rows. Most observers only count them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return [row[PLACE] for row in self._rows[at]] if isinstance(at, slice) else self._rows[at][PLACE]
