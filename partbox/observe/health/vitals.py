"""A node as it is observed: what its supervisor says of itself, its meters, and its database."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.metrics.meter import Meters


@dataclass(frozen=True, slots=True)
class ProcessVitals:
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
class SupervisorVitals:
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
    processes: tuple[ProcessVitals, ...]
    deaths: int
    crash_loop: bool
    hindrance: str | None = None


@dataclass(frozen=True, slots=True)
class MonitoredSupervisor:
    """One supervisor and its database; `database` names it among several."""

    database: str
    node: str
    subscription: str
    meters: Meters
    probe: DatabaseProbe
    vitals: Callable[[], SupervisorVitals]

    def instances(self) -> Collection[UUID]:
        """The instances that this node's processes are now."""
        return {process.instance for process in self.vitals().processes if process.instance is not None}
