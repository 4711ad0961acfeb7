"""The databases of a node, as the page of one of them lists all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

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
    vitals = [each.vitals() for each in watched]
    return [
        Sibling(each.database, f"{up}{folder(place)}", place == here, next(chain(deadly(its), hindering(its)), None))
        for place, (each, its) in enumerate(zip(watched, vitals, strict=True))
    ]
