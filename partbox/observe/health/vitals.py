"""State of a monitored node: its supervisors, their processes, meters and databases."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.metrics.meter import Meters


@dataclass(frozen=True, slots=True)
class ProcessVitals:
    """The health data of one worker process, as seen by its supervisor. Times are in seconds.

    `silent` is the time since its last sign of life, `handler` the run time of its longest handler (None if none runs).
    `unread` and `unsaved` are the times since it could last read and save. `entering` is the time that it has spent in
    its lifespan so far, 0.0 once it works. `vouched` means that its lease is renewed, `trusted` that it holds a lease
    now. `partitions` is the number that the process itself reports as owned."""

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
    """A snapshot of the health of a supervisor and its worker processes. Times are in seconds.

    `loop_age` is the time since its loop last turned, 0.0 while it waits for the database. `heartbeat_age` is the time
    since the last successful heartbeat, None if there was none. `deaths` counts the processes that died within the last
    minute, and `crash_loop` is True if that is too many. `hindrance` says why the supervisor cannot work for a
    database, one of several; the text is safe to show to anybody."""

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
    """A supervisor whose health is checked, together with access to its database. `database` names the database if the
    node has several."""

    database: str
    node: str
    subscription: str
    meters: Meters
    probe: DatabaseProbe
    vitals: Callable[[], SupervisorVitals]

    def instances(self) -> Collection[UUID]:
        """Return the ids under which this node's worker processes are registered in the database."""
        return {process.instance for process in self.vitals().processes if process.instance is not None}
