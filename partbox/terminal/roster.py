"""Gives every worker process a letter and a colour, which it keeps."""

from collections.abc import Hashable, Iterable
from itertools import cycle, islice
from string import ascii_uppercase
from typing import Final, NamedTuple

# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS: Final = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#8A9AE8", "#A0A0A0")


class ProcessBadge(NamedTuple):
    """The letter and the colour of a process."""

    letter: str
    colour: str


NO_BADGE: Final = ProcessBadge("·", "bright_black")


class Roster:
    """Newcomers get the letter after the last one, so that a replacement is not taken for the process it replaces.

    Processes are known by any hashable id.
    """

    def __init__(self) -> None:
        self._badges: dict[Hashable, ProcessBadge] = {}
        self._letters = cycle(ascii_uppercase)

    def add_processes(self, processes: Iterable[Hashable]) -> None:
        """Give the new ones a face; `processes` are all that live."""
        living = list(processes)
        for process in living:
            if process not in self._badges:
                others = {self._badges[other] for other in living if other in self._badges}
                used_colours = [other.colour for other in others]
                taken = {other.letter for other in others}
                candidates = islice(self._letters, len(ascii_uppercase))
                letter = next((each for each in candidates if each not in taken), "?")
                self._badges[process] = ProcessBadge(
                    letter, min(COLOURS, key=used_colours.count)
                )  # with the fewest wearers

    def badge(self, process: Hashable | None) -> ProcessBadge:
        """The face of a process that was met."""
        return self._badges.get(process, NO_BADGE) if process is not None else NO_BADGE
