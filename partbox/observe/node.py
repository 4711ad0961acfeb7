"""A node as it is observed: what its supervisor says of itself, its meters, and its database."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from partbox.errors import SettingsError
from partbox.observe.looker import Looker
from partbox.observe.meter import Meters
from partbox.rules.dsn import parts
from partbox.rules.printing import printable_line

LONGEST = 60  # characters of a database's name


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process, as its supervisor sees it. `silent`: seconds since it has last shown life; `handler`: how
    long its longest handler runs by now (s), None if none does; `vouched`: whether its lease is renewed; `trusted`:
    whether it holds a lease now; `unread`, `unsaved`: seconds since it was last able to read, and to save;
    `partitions`: how many it owns, as it says itself."""

    pid: int
    ready: bool
    silent: float
    handler: float | None
    vouched: bool
    trusted: bool
    instance: UUID | None
    unread: float = 0.0
    unsaved: float = 0.0
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class Vitals:
    """A supervisor at one moment; times are in seconds.

    `stepped`: since its loop has last turned, 0.0 while it waits for the database; `beaten`: since the last heartbeat
    that the database took, None if none was; `deaths`: processes that died within the last minute, `crash_loop` if
    those are too many; `hindrance`: why a database, one of several, cannot be worked for, in words for everybody.
    """

    started: bool
    running: bool
    stopping: bool
    failure: str | None
    lease: float
    stepped: float
    beaten: float | None
    wanted: int
    processes: tuple[Process, ...]
    deaths: int
    crash_loop: bool
    hindrance: str | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """One supervisor and its database; `database` names it among several."""

    database: str
    node: str
    subscription: str
    meters: Meters
    looker: Looker
    vitals: Callable[[], Vitals]

    def instances(self) -> Collection[UUID]:
        """The instances that this node's processes are now."""
        return {process.instance for process in self.vitals().processes if process.instance is not None}


def database_names(dsns: Sequence[str]) -> list[str]:
    """What to call these databases, in logs, metrics, health checks and on the page: by name, with host and port where
    that does not tell them apart, never more."""
    short, long = [_name(dsn) for dsn in dsns], [_place(dsn) for dsn in dsns]
    names = [place if short.count(name) > 1 else name for name, place in zip(short, long, strict=True)]
    seen: Counter[str] = Counter()
    for at, name in enumerate(names):
        seen[name] += 1
        names[at] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names


def _name(dsn: str) -> str:
    given = _parts(dsn)
    name = given.get("dbname") or given.get("service") or given.get("user") or "default"
    return printable_line(name, LONGEST)


def _place(dsn: str) -> str:
    given = _parts(dsn)
    place = f"{given.get('host') or 'localhost'}:{given.get('port') or '5432'}"
    return f"{printable_line(place, LONGEST)}/{_name(dsn)}"


def _parts(dsn: str) -> dict[str, str]:
    try:
        return parts(dsn)
    except SettingsError:  # connecting will say what is wrong with it
        return {}
