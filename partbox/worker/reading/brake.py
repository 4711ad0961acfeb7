"""Says when partitions stop taking new records, because too many of theirs are parked, and when they go on."""

import logging

from partbox.observe.logs.log_event import log_event
from partbox.text.printing import first_few
from partbox.text.wording import counted
from partbox.worker.state.holdings import Holdings

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
            rows = {number: each.parked.open for number, each in self._holdings.partitions.items() if not each.lost}
        self._on &= rows.keys()
        on = {number for number, count in rows.items() if count >= self._max_parked} - self._on
        off = {number for number in self._on if rows[number] < RELEASED * self._max_parked}
        if on:
            self._say_on(sorted(on))
        if off:
            text, what = (
                "there is room for parked records again: delivery goes on in %s (%s)",
                counted(len(off), "partition"),
            )
            numbers = first_few(sorted(off))
            log_event(log, "brake_released", text, what, numbers, subscription=self._subscription, partitions=len(off))
        self._on = (self._on | on) - off

    def _say_on(self, numbers: list[int]) -> None:
        log_event(
            log,
            "brake",
            "nothing new is delivered in %s (%s) until some of its parked records are done: %d are open there "
            "(max_parked), see `partbox blocked list`",
            counted(len(numbers), "partition"),
            first_few(numbers),
            self._max_parked,
            subscription=self._subscription,
            partitions=len(numbers),
            max_parked=self._max_parked,
        )
