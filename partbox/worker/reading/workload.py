"""The load of one worker: how much it has in memory, for observers."""

from partbox.observe import Load, Observers
from partbox.worker.delivering.dispatcher import Dispatcher
from partbox.worker.reading.log_reader import LogReader
from partbox.worker.state.holdings import Holdings


class Workload:
    """Counts what is read and not saved, what waits, and what runs. The poller's thread only."""

    def __init__(self, holdings: Holdings, dispatcher: Dispatcher, reader: LogReader, observers: Observers) -> None:
        self._holdings = holdings
        self._dispatcher = dispatcher
        self._reader = reader
        self._observers = observers

    def tell(self) -> None:
        """Tell whoever listens."""
        if self._observers.hears("loaded"):
            self._observers.loaded(self.measure())

    def measure(self) -> Load:
        """As it is now."""
        with self._holdings.lock:
            held = [partition for partition in self._holdings.partitions.values() if not partition.lost]
            records = sum(partition.progress.unsaved() for partition in held)
            lanes = sum(partition.queues() for partition in held)
            bound = self._reader.bound(held)
        return Load(records, bound, lanes, self._dispatcher.handlers(), len(held))
