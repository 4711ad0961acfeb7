"""How processes are called on the page: by a letter and a colour, as on a terminal."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from partbox.db.stats import Instance
from partbox.terminal.roster import COLOURS, NOBODY, Roster


class Face(NamedTuple):
    """A letter, and the number of a colour of the page."""

    letter: str
    slot: int


class Faces(Protocol):
    """Gives the face of each of those that live now."""

    def __call__(self, instances: Iterable[Instance]) -> dict[UUID, Face]: ...


def own() -> Faces:
    """Each process has a face of its own from when it is first seen."""
    roster = Roster()

    def faces(instances: Iterable[Instance]) -> dict[UUID, Face]:
        living = [instance.instance_id for instance in instances]
        roster.meet(living)
        return {id: _face(roster, id) for id in living}

    return faces


def of_pids(roster: Roster) -> Faces:
    """The faces that somebody else has given, to pids; who has none yet is nobody."""
    return lambda instances: {each.instance_id: _face(roster, each.pid) for each in instances}


def _face(roster: Roster, process: UUID | int) -> Face:
    face = roster.face(process)
    return Face(face.letter, len(COLOURS) - 1 if face is NOBODY else COLOURS.index(face.colour))
