"""The letter and the colour of each process on the page, as on a terminal."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from partbox.db.inspect.stats import Instance
from partbox.terminal.roster import COLOURS, NOBODY, Roster


class ProcessLabel(NamedTuple):
    """A letter, and the number of a colour of the page."""

    letter: str
    slot: int


class ProcessLabels(Protocol):
    """The label of each living process."""

    def __call__(self, instances: Iterable[Instance]) -> dict[UUID, ProcessLabel]: ...


def own() -> ProcessLabels:
    """ProcessLabels given by the page itself, when it first sees a process."""
    roster = Roster()

    def labels(instances: Iterable[Instance]) -> dict[UUID, ProcessLabel]:
        living = [instance.instance_id for instance in instances]
        roster.meet(living)
        return {id: _label(roster, id) for id in living}

    return labels


def from_roster(roster: Roster) -> ProcessLabels:
    """The labels that another view has given; a process without one is shown as nobody."""
    return lambda instances: {each.instance_id: _label(roster, each.instance_id) for each in instances}


def _label(roster: Roster, process: UUID) -> ProcessLabel:
    face = roster.face(process)
    return ProcessLabel(face.letter, len(COLOURS) - 1 if face is NOBODY else COLOURS.index(face.colour))
