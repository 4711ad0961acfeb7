"""The letter and the colour of each process on the page, as on a terminal."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from partbox.db.inspect.stats import Instance
from partbox.terminal.roster import COLOURS, NOBODY, Roster


class PageFace(NamedTuple):
    """A letter, and the number of a colour of the page."""

    letter: str
    slot: int


class Faces(Protocol):
    """The face of each living process."""

    def __call__(self, instances: Iterable[Instance]) -> dict[UUID, PageFace]: ...


def own() -> Faces:
    """Faces given by the page itself, when it first sees a process."""
    roster = Roster()

    def faces(instances: Iterable[Instance]) -> dict[UUID, PageFace]:
        living = [instance.instance_id for instance in instances]
        roster.meet(living)
        return {id: _face(roster, id) for id in living}

    return faces


def from_roster(roster: Roster) -> Faces:
    """The faces that another view has given; a process without one is shown as nobody."""
    return lambda instances: {each.instance_id: _face(roster, each.instance_id) for each in instances}


def _face(roster: Roster, process: UUID) -> PageFace:
    face = roster.face(process)
    return PageFace(face.letter, len(COLOURS) - 1 if face is NOBODY else COLOURS.index(face.colour))
