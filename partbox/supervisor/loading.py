"""The ways in which a worker process gets its handlers and codecs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from partbox.codecs import Codecs
from partbox.handlers import Handlers


class HasHandlers(Protocol):
    """An outbox, as far as a worker process needs it."""

    @property
    def handlers(self) -> Handlers: ...
    @property
    def codecs(self) -> Codecs: ...


@dataclass(frozen=True, slots=True)
class CarriedHandlers:
    """Handlers and codecs as they are here, carried to the worker process."""

    handlers: Handlers
    codecs: Codecs

    def __call__(self) -> tuple[Handlers, Codecs]:
        return self.handlers, self.codecs


@dataclass(frozen=True, slots=True)
class ImportedHandlers:
    """Those of the outbox that `source` imports in the worker process."""

    source: Callable[[], HasHandlers]

    def __call__(self) -> tuple[Handlers, Codecs]:
        outbox = self.source()
        return outbox.handlers, outbox.codecs
