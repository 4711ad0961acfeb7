"""A process of the bench beside the worker processes: it ends when it is told to, and when its parent is gone.

It is told through a pipe. Events of multiprocessing do not do: whoever sets one waits for those who wait for it, for
ever if one of them was killed.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from multiprocess import get_context

from partbox.supervisor.signals import hold_signals

TO_END: Final = 30.0


class StopPipe(Protocol):
    """The end of the pipe that the process holds."""

    def poll(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; True if the process is to end."""
        ...


class ChildProcess:
    """Started and ended by `with`: runs `program(*task, stop)`."""

    def __init__(self, name: str, program: Callable[..., None], *task: Any) -> None:
        context = get_context("spawn")
        self._theirs, self._ours = context.Pipe(duplex=False)
        self._process = context.Process(target=program, args=(*task, self._theirs), name=name)

    def __enter__(self) -> "ChildProcess":
        with hold_signals():
            self._process.start()
        self._theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._process.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def ended(self) -> bool:
        return not self._process.is_alive()

    def stop(self) -> None:
        """Let it end, and wait for that; kill it if it does not."""
        self._ours.close()
        self._process.join(TO_END)
        if not self.ended:
            self._process.kill()
            self._process.join()
