"""The letter and the colour of each process on the page, as on a terminal."""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from partbox.db.inspect.stats import Instance
from partbox.terminal.roster import COLOURS, NOBODY, Roster


class ProcessLabel(NamedTuple):
    """A letter, and the number of a colour of the page."""

    letter: str
    slot: int


ProcessLabels = Callable[[Iterable[Instance]], dict[UUID, ProcessLabel]]
"""The labels of living processes."""


def own() -> ProcessLabels:
    """ProcessLabels given by the page itself, when it first sees a process."""
    roster = Roster()
    known = from_roster(roster)

    def labels(instances: Iterable[Instance]) -> dict[UUID, ProcessLabel]:
        roster.meet([each.instance_id for each in instances])
        return known(instances)

    return labels


def from_roster(roster: Roster) -> ProcessLabels:
    """The labels that another view has given; a process without one is shown as nobody."""
    return lambda instances: {each.instance_id: _label(roster, each.instance_id) for each in instances}


def _label(roster: Roster, process: UUID) -> ProcessLabel:
    face = roster.face(process)
    return ProcessLabel(face.letter, len(COLOURS) - 1 if face is NOBODY else COLOURS.index(face.colour))
