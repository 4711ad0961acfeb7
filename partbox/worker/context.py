"""The context of a worker: the objects that most of its parts share."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from partbox.handlers import Routes
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.settings import Settings
from partbox.text.printing import format_first_numbers
from partbox.text.wording import format_count
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Tenure
from partbox.worker.handler_limits import HandlerLimits
from partbox.worker.poller.wakeup import Wakeup
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.slot import Slot


def _ignore_signal(*_: object) -> None: ...


@dataclass(slots=True)
class Signals:
    """Callbacks by which the parts of one worker report refused saves, broken connections and fatal errors.

    They run in the reporting thread, and `worker.py` sets the receivers."""

    # A save was refused because these partitions are not owned any more. Called by the saving thread, without the lock.
    report_refused: Callable[[Sequence[Tenure]], object] = _ignore_signal

    # A connection is lost, or the data that was read may be wrong, so all must be read anew. Called by any thread.
    report_broken: Callable[[], object] = _ignore_signal

    # A thread that must not end has ended with this error, so the worker is useless. Called by that thread.
    report_failure: Callable[[BaseException], object] = _ignore_signal


@dataclass(frozen=True)
class Context:
    """The settings, engine, observers and other objects that all parts of one worker share."""

    # `dsn` is called for each new connection.

    settings: Settings
    dsn: Callable[[], str]
    routes: Routes[Endpoint]
    engine: Engine
    subscription: str = "default"
    concurrency: int = 1
    slot: Slot = field(default_factory=Slot.create_local)
    observers: Observers = field(default_factory=Observers)
    signals: Signals = field(default_factory=Signals)
    wakeup: Wakeup = field(default_factory=Wakeup)

    def __post_init__(self) -> None:
        self.engine.wakes.wake_poller, self.engine.wakes.interrupt_poller = (
            self.wakeup.set,
            self.wakeup.interrupt_poller,
        )

    @property
    def schema(self) -> str:
        return self.settings.schema_name

    @cached_property
    def log(self) -> Callable[..., None]:
        """A function that logs a named event by the worker's logger, with the subscription as a field."""
        return partial(log_event, logging.getLogger("partbox.worker"), subscription=self.subscription)

    @cached_property
    def limits(self) -> HandlerLimits:
        """The rate and concurrency limits of the handlers. Operators may change them while the worker runs."""
        return HandlerLimits(self.routes, self.engine.limits)

    def log_partitions(self, name: str, text: str, numbers: Sequence[int], *more: object, **fields: object) -> None:
        """Log a named event that concerns several partitions."""
        # The placeholders of `text` take the count of partitions, the first few of their numbers, and the values of
        # `more`.
        what, some = format_count(len(numbers), "partition"), format_first_numbers(numbers)
        self.log(name, text, what, some, *more, partitions=len(numbers), **fields)
