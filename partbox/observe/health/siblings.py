"""The databases of a node, as the page of one of them tells of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partbox.observe.health.health import deadly, hindering
from partbox.observe.health.vitals import MonitoredSupervisor

FOLDER = "databases"


@dataclass(frozen=True, slots=True)
class Sibling:
    """One database. `href` leads from the page to its own; `trouble`: why this node cannot work for it now."""

    name: str
    href: str
    here: bool
    trouble: str | None


Siblings = Callable[[], Sequence[Sibling]]


def folder(place: int) -> str:
    """Where the page of the database at this place is, below the address; that of the first is the address itself."""
    return f"{FOLDER}/{place + 1}/" if place else ""


def siblings(watched: Sequence[MonitoredSupervisor], here: int) -> Sequence[Sibling]:
    """What the page of the database at place `here` tells of each, itself included; nothing where it is alone."""
    if len(watched) < 2:
        return ()
    up = "../../" if here else "./"
    return [
        Sibling(each.database, f"{up}{folder(place)}", place == here, _trouble(each))
        for place, each in enumerate(watched)
    ]


def _trouble(watched: MonitoredSupervisor) -> str | None:
    vitals = watched.vitals()
    return next(iter([*deadly(vitals), *hindering(vitals)]), None)
