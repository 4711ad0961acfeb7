"""The things that the parts of one worker share."""

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
from partbox.worker.delivering.endpoint import Endpoint
from partbox.worker.owning.slot import Slot
from partbox.worker.signals import Signals
from partbox.worker.state.holdings import Holdings


@dataclass(frozen=True)
class Context:
    """`dsn` is asked for each connection; `routes` has the endpoint of each event."""

    settings: Settings
    dsn: Callable[[], str]
    routes: Routes[Endpoint]
    holdings: Holdings
    subscription: str = "default"
    concurrency: int = 1
    slot: Slot = field(default_factory=Slot.local)
    observers: Observers = field(default_factory=Observers)
    signals: Signals = field(default_factory=Signals)

    @property
    def schema(self) -> str:
        return self.settings.schema_name

    @cached_property
    def log(self) -> Callable[..., None]:
        """`log_event` with the worker's logger and the subscription."""
        return partial(log_event, logging.getLogger("partbox.worker"), subscription=self.subscription)

    def log_partitions(self, name: str, text: str, numbers: Sequence[int], *more: object, **fields: object) -> None:
        """The same of some partitions: the text takes how many they are, the first of their numbers, and `more`."""
        what, some = counted(len(numbers), "partition"), first_few(numbers)
        self.log(name, text, what, some, *more, partitions=len(numbers), **fields)
