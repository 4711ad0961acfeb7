"""State of a monitored node: its supervisors, their processes, meters and databases."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.metrics.meter import Meters


@dataclass(frozen=True, slots=True)
class ProcessVitals:
    """The health data of one worker process, as seen by its supervisor. Times are in seconds."""

    # `silent_seconds` is the time since its last sign of life, `handler_seconds` the run time of its longest handler
    # (None if none runs). `unread_seconds` and `unsaved_seconds` are the times since it could last read and save.
    # `lifespan_seconds` is the time that it has spent in its lifespan so far, 0.0 once it works. `is_vouched` means
    # that its lease is renewed, `is_trusted` that it holds a lease now. `partitions` is the number that the process
    # itself reports as owned.

    pid: int
    is_ready: bool
    silent_seconds: float
    handler_seconds: float | None
    is_vouched: bool
    is_trusted: bool
    instance: UUID | None
    unread_seconds: float = 0.0
    unsaved_seconds: float = 0.0
    partitions: int = 0
    lifespan_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SupervisorVitals:
    """A snapshot of the health of a supervisor and its worker processes. Times are in seconds."""

    # `loop_age` is the time since its loop last turned, 0.0 while it waits for the database. `heartbeat_age` is the
    # time since the last successful heartbeat, None if there was none. `recent_deaths` counts the processes that died
    # within the last minute, and `is_crash_looping` is True if that is too many. `hindrance` says why the supervisor
    # cannot work for a database, one of several; the text is safe to show to anybody.

    has_started: bool
    is_running: bool
    is_stopping: bool
    failure: str | None
    lease: float
    loop_age: float
    heartbeat_age: float | None
    wanted_processes: int
    processes: tuple[ProcessVitals, ...]
    recent_deaths: int
    is_crash_looping: bool
    hindrance: str | None = None


@dataclass(frozen=True, slots=True)
class MonitoredSupervisor:
    """A supervisor whose health is checked, together with access to its database. `database` names the database if the
    node has several. `count_problems` returns the number of doctor's findings by severity, or None if none is known."""

    database: str
    node: str
    subscription: str
    meters: Meters
    probe: DatabaseProbe
    read_vitals: Callable[[], SupervisorVitals]
    count_problems: Callable[[], Mapping[str, int] | None]

    def list_instances(self) -> Collection[UUID]:
        """Return the ids under which this node's worker processes are registered in the database."""
        return {process.instance for process in self.read_vitals().processes if process.instance is not None}
