"""The workers that an application has in its own process, to be woken when it has committed something for them."""

import threading
from typing import Any, Protocol
from weakref import WeakSet


class Sleeper(Protocol):
    """An embedded worker, for those who publish."""

    def wake(self) -> None: ...


class Sleepers:
    """Embedded workers, held weakly. They do not travel: in another process there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: WeakSet[Sleeper] = WeakSet()

    def add(self, worker: Sleeper) -> None:
        with self._lock:
            self._workers.add(worker)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._workers)

    def wake(self) -> None:
        """Have those that run look for new records at once."""
        with self._lock:
            workers = [*self._workers]
        for worker in workers:
            worker.wake()

    def __reduce__(self) -> tuple[Any, ...]:
        return Sleepers, ()
