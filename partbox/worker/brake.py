"""Says when partitions stop taking new records, because too many of theirs are parked, and when they go on."""

import logging

from partbox.observe.telling import tell
from partbox.rules.printing import first_few
from partbox.worker.holdings import Holdings

log = logging.getLogger("partbox.worker")

RELEASED = 0.9  # of `max_parked`: below it an episode is over, and the next is said again


class Brake:
    """The braked partitions of one process. The poller's thread looks, at each tick."""

    def __init__(self, holdings: Holdings, max_parked: int, subscription: str) -> None:
        self._holdings = holdings
        self._max_parked = max_parked
        self._subscription = subscription
        self._on: set[int] = set()

    def look(self) -> None:
        """One look."""
        with self._holdings.lock:
            rows = {number: each.open_rows for number, each in self._holdings.partitions.items() if not each.lost}
        self._on &= rows.keys()
        on = {number for number, count in rows.items() if count >= self._max_parked} - self._on
        off = {number for number in self._on if rows[number] < RELEASED * self._max_parked}
        if on:
            self._say_on(sorted(on))
        if off:
            text = "partitions %s have room for parked records again, and go on"
            numbers = first_few(sorted(off))
            tell(log, "brake_released", text, numbers, subscription=self._subscription, partitions=len(off))
        self._on = (self._on | on) - off

    def _say_on(self, numbers: list[int]) -> None:
        tell(
            log,
            "brake",
            "partitions %s have %d open parked records (max_parked): nothing new of them is delivered until some are "
            "done, see `partbox blocked list`",
            first_few(numbers),
            self._max_parked,
            subscription=self._subscription,
            partitions=len(numbers),
            max_parked=self._max_parked,
        )
