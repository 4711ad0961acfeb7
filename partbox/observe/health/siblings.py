"""The databases of a node, as the page of one of them lists all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partbox.observe.health.health import deadly, hindering
from partbox.observe.health.vitals import MonitoredSupervisor

FOLDER = "databases"


@dataclass(frozen=True, slots=True)
class Sibling:
    """One database. `href`: the link to its page; `trouble`: the reason that this node cannot work for it now."""

    name: str
    href: str
    here: bool
    trouble: str | None


Siblings = Callable[[], Sequence[Sibling]]


def folder(place: int) -> str:
    """The path of the page of the database at this place; the first is at the address itself."""
    return f"{FOLDER}/{place + 1}/" if place else ""


def siblings(watched: Sequence[MonitoredSupervisor], here: int) -> Sequence[Sibling]:
    """The databases as listed on the page of the one at `here`, itself included; empty if it is the only one."""
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
