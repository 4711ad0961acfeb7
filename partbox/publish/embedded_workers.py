"""The workers embedded in an application, to be woken when it has committed events for them."""

import threading
from typing import Any, Protocol
from weakref import WeakSet


class Wakeable(Protocol):
    """An embedded worker, as publishers see it."""

    def wake(self) -> None: ...


class EmbeddedWorkers:
    """Embedded workers, held weakly. Not sent to other processes, which have none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: WeakSet[Wakeable] = WeakSet()

    def register(self, worker: Wakeable) -> None:
        with self._lock:
            self._workers.add(worker)

    def __bool__(self) -> bool:
        """True if there are any."""
        return bool(self._workers)

    def wake(self) -> None:
        """Have them poll at once."""
        with self._lock:
            workers = [*self._workers]
        for worker in workers:
            worker.wake()

    def __reduce__(self) -> tuple[Any, ...]:
        return EmbeddedWorkers, ()
