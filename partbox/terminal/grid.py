"""The map of the partitions: a letter for each, on its owner's colour."""

from collections.abc import Collection, Hashable, Sequence
from typing import Final

from rich.style import Style
from rich.text import Text

from partbox.terminal.roster import Face, Roster

SIDE: Final = 16  # the grid has 16 x 16 partitions


def grid(owners: Sequence[Hashable | None], roster: Roster, moved: Collection[int], cell: int) -> Text:
    """A letter for each partition, `cell` columns wide; one that has just moved has its colours swapped."""
    drawn = Text(no_wrap=True)
    for partition, owner in enumerate(owners):
        face = roster.face(owner)
        plain = owner is None or partition in moved
        style = Style.parse(f"bold {face.colour}" if plain else f"black on {face.colour}")
        drawn.append(face.letter.center(cell), style)
        if partition % SIDE == SIDE - 1 and partition < len(owners) - 1:
            drawn.append("\n")
    return drawn


def badge(face: Face) -> Text:
    """The mark of a process beside the map."""
    return Text(f" {face.letter} ", f"bold black on {face.colour}")
