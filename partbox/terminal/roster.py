"""Letters and colours that identify worker processes."""

from collections.abc import Hashable, Iterable
from itertools import cycle, islice
from string import ascii_uppercase
from typing import Final, NamedTuple

# The colours of Okabe and Ito, which colour-blind people can tell apart.
COLOURS: Final = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#8A9AE8", "#A0A0A0")


class ProcessBadge(NamedTuple):
    letter: str
    colour: str


NO_BADGE: Final = ProcessBadge("·", "bright_black")


class Roster:
    """The letters and colours (badges) by which a terminal view tells worker processes apart.

    A process, known by any hashable id, keeps its badge. A new one gets the next letter, so that nobody mistakes it for
    the process it replaces."""

    def __init__(self) -> None:
        self._badges: dict[Hashable, ProcessBadge] = {}
        self._letters = cycle(ascii_uppercase)

    def add_processes(self, processes: Iterable[Hashable]) -> None:
        """Give a letter and a colour (a badge) to each process that has none."""
        # `processes` are the ids of all living processes. The colour that they use least is taken.
        living = list(processes)
        for process in living:
            if process not in self._badges:
                others = {self._badges[other] for other in living if other in self._badges}
                used_colours = [other.colour for other in others]
                taken = {other.letter for other in others}
                candidates = islice(self._letters, len(ascii_uppercase))
                letter = next((each for each in candidates if each not in taken), "?")
                self._badges[process] = ProcessBadge(letter, min(COLOURS, key=used_colours.count))

    def find_badge(self, process: Hashable | None) -> ProcessBadge:
        return self._badges.get(process, NO_BADGE) if process is not None else NO_BADGE
