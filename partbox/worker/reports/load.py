"""Reports of a worker's load at each tick, and of partitions that read nothing new."""

from partbox.observe import Load
from partbox.worker.context import Context

# Share of `max_parked` below which the brake is logged as released, and may be logged again.
RELEASE_SHARE = 0.9
BRAKE_TEXT = (
    "all handlers wait for services that are unavailable, and nothing new is read in %s (%s): each has %d or more open "
    "parked records (max_parked), see `partbox blocked list`"
)


class LoadReport:
    """The reporter of a process's load, and of partitions that stop reading because too many of their events failed.

    Failed events are kept in parked records, whose number is limited by `max_parked`. Only the poller's thread uses
    this class."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._credits = context.engine.credits
        self._scheduler = context.engine.scheduler
        self._braked_partitions: set[int] = set()

    def report_load(self) -> None:
        """Report the load of this process to observers."""
        # Partitions that stop or resume reading because of too many parked records are logged.
        self._log_brake()
        if self._context.observers.has_hook("loaded"):
            self._context.observers.loaded(self.measure_load())

    def measure_load(self) -> Load:
        """Return the current load of this process, such as records in memory and running handlers."""
        # The load has the records in memory and their bound, lanes (queues of one key), running handlers, and
        # partitions.
        load = self._credits.measure_load()
        return Load(load.records, load.max_records, load.lanes, len(self._scheduler.list_handling()), load.partitions)

    def _log_brake(self) -> None:
        most = self._context.settings.max_parked
        rows = self._credits.count_open_rows()
        self._braked_partitions &= rows.keys()
        brakes = self._credits.brakes
        on = {number for number, count in rows.items() if brakes and count >= most} - self._braked_partitions
        off = {number for number in self._braked_partitions if not brakes or rows[number] < RELEASE_SHARE * most}
        if on:
            self._context.log_partitions("brake", BRAKE_TEXT, sorted(on), most, max_parked=most)
        if off:
            text = "delivery goes on in %s (%s)"
            self._context.log_partitions("brake_released", text, sorted(off))
        self._braked_partitions = (self._braked_partitions | on) - off
