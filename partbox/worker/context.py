"""Everything that the parts of one worker share, and the signals between them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from partbox.handlers import Routes
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.settings import Settings
from partbox.text.printing import first_few
from partbox.text.wording import counted
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Tenure
from partbox.worker.handler_limits import HandlerLimits
from partbox.worker.poller.wakeup import Wakeup
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.slot import Slot


def _ignore_signal(*_: object) -> None:
    """No part listens."""


@dataclass(slots=True)
class Signals:
    """Signals between the parts of one worker: one that tells knows none that listens, `worker.py` sets the listener.

    It is called in the thread that tells.
    """

    report_refused: Callable[[Sequence[Tenure]], object] = _ignore_signal
    """Partitions are not mine any more: a save of them was refused. By whoever saves, without the lock."""

    report_broken: Callable[[], object] = _ignore_signal
    """A connection is lost, or what was read is not to be trusted: all is to be read anew. Any thread."""

    report_failure: Callable[[BaseException], object] = _ignore_signal
    """A thread has ended that must not: the worker is of no use any more. By that thread."""


@dataclass(frozen=True)
class Context:
    """`dsn` is asked for each connection; `routes` has the endpoint of each event."""

    settings: Settings
    dsn: Callable[[], str]
    routes: Routes[Endpoint]
    engine: Engine
    subscription: str = "default"
    concurrency: int = 1
    slot: Slot = field(default_factory=Slot.local)
    observers: Observers = field(default_factory=Observers)
    signals: Signals = field(default_factory=Signals)
    wakeup: Wakeup = field(default_factory=Wakeup)

    def __post_init__(self) -> None:
        self.engine.wakes.poll, self.engine.wakes.interrupt_poller = self.wakeup.set, self.wakeup.call

    @property
    def schema(self) -> str:
        return self.settings.schema_name

    @cached_property
    def log(self) -> Callable[..., None]:
        """`log_event` with the worker's logger and the subscription."""
        return partial(log_event, logging.getLogger("partbox.worker"), subscription=self.subscription)

    @cached_property
    def limits(self) -> HandlerLimits:
        """The limits of the handlers, to be given others while the worker runs."""
        return HandlerLimits(self.routes, self.engine.limits)

    def log_partitions(self, name: str, text: str, numbers: Sequence[int], *more: object, **fields: object) -> None:
        """Log a line about some partitions: its text takes their count, the first of their numbers, and `more`."""
        what, some = counted(len(numbers), "partition"), first_few(numbers)
        self.log(name, text, what, some, *more, partitions=len(numbers), **fields)
