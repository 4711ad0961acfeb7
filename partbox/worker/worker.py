"""One worker: poller, dispatcher and saver of one process, from start to stop."""

import logging
import time
from collections.abc import Callable

from partbox.codecs import Codecs
from partbox.errors import SchemaError
from partbox.handlers import Routes
from partbox.settings import Settings
from partbox.worker.delivery import Delivery
from partbox.worker.dispatcher import Dispatcher
from partbox.worker.holdings import Holdings
from partbox.worker.intake import Intake
from partbox.worker.poller import Poller
from partbox.worker.slot import STOPPING, Slot

log = logging.getLogger("partbox.worker")


class Worker:
    """Delivers the events of the partitions that its instance owns. Who the instance is says the slot."""

    def __init__(
        self,
        settings: Settings,
        routes: Routes,
        codecs: Codecs,
        slot: Slot,
        *,
        subscription: str,
        concurrency: int,
        dsn: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._slot = slot
        self._failure: BaseException | None = None
        self.holdings = Holdings()
        delivery = Delivery(self.holdings, routes, slot, settings=settings)
        self.dispatcher = Dispatcher(self.holdings, delivery, slot, concurrency, on_failure=self._fail)
        intake = Intake(self.holdings, self.dispatcher, codecs, subscription)
        self.poller = Poller(
            self.holdings, self.dispatcher, intake, slot, settings, subscription, dsn, on_failure=self._fail
        )

    @property
    def failure(self) -> BaseException | None:
        """What ended the worker, if it ended by itself."""
        return self._failure

    def start(self) -> None:
        self.poller.start()

    def wake(self) -> None:
        """Look for new records at once."""
        self.poller.wake()

    def drain(self, timeout: float) -> bool:
        """Start nothing new, release every partition, wait at most `timeout` seconds; whether all are released."""
        self._slot[STOPPING] = 1.0
        self.poller.wake()
        until = time.monotonic() + timeout
        while self._owns() and self.failure is None and time.monotonic() < until:
            time.sleep(0.005)
        return not self._owns()

    def stop(self, timeout: float | None = None) -> bool:
        """Drain for at most `timeout` seconds (the setting), then end; False when handlers had to be abandoned.

        Partitions whose handlers still run then are not released: their events may be delivered again elsewhere,
        which is said for each.
        """
        drained = self.drain(self._settings.drain_timeout if timeout is None else timeout)
        for event in self.dispatcher.running():
            log.warning("stopped while the handler of %r was running: it may be delivered again", event)
        self.dispatcher.stop()
        ended = self.dispatcher.join(time.monotonic() + (1.0 if drained else 0.1))
        self.poller.end()
        return drained and ended

    def _fail(self, error: BaseException) -> None:
        """A thread has ended that must not: the worker is of no use any more, and says so."""
        log.critical("the worker ends: %s", error, exc_info=None if isinstance(error, SchemaError) else error)
        self._failure = error

    def _owns(self) -> bool:
        with self.holdings.lock:
            return any(not partition.lost for partition in self.holdings.partitions.values())
