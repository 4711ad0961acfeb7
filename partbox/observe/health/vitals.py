"""A node as it is monitored: the state of its supervisor, its meters, and its database."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.metrics.meter import Meters


@dataclass(frozen=True, slots=True)
class ProcessVitals:
    """A worker process, as its supervisor sees it. `silent`: seconds since its last sign of life; `handler`: seconds
    that its longest handler has run, None if none runs; `vouched`: its lease is renewed; `trusted`: it holds a lease
    now; `unread`, `unsaved`: seconds since it could last read, and save; `partitions`: the number that it says it
    owns; `entering`: seconds for which it has been in its lifespan, 0.0 once it works."""

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
    entering: float = 0.0


@dataclass(frozen=True, slots=True)
class SupervisorVitals:
    """A supervisor at one moment; times are in seconds.

    `loop_age`: since its loop last turned, 0.0 while it waits for the database; `heartbeat_age`: since the last
    successful heartbeat, None if there was none; `deaths`: processes that died within the last minute, `crash_loop` if
    those are too many; `hindrance`: the reason that a database, one of several, cannot be worked for; it may be shown
    to anybody.
    """

    started: bool
    running: bool
    stopping: bool
    failure: str | None
    lease: float
    loop_age: float
    heartbeat_age: float | None
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
        """The present instances of this node's processes."""
        return {process.instance for process in self.vitals().processes if process.instance is not None}
