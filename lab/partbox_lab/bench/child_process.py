"""A child process of the bench that ends when the parent stops it or dies.

A pipe carries the signal. An event of multiprocessing would not do: its setter waits for all waiters, for ever if one
of them was killed."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from multiprocess import get_context

from partbox.supervisor.signals import hold_signals

TO_END: Final = 30.0  # seconds, then the process is killed


class StopPipe(Protocol):
    """The child's end of a pipe that never carries data."""

    def poll(self, timeout: float) -> bool:
        """Return True as soon as the parent has stopped the child or has died, and False after `timeout` seconds."""
        ...


class ChildProcess:
    """A spawned process that runs `program(*task, stop_pipe)`. The context manager starts and stops it."""

    def __init__(self, name: str, program: Callable[..., None], *task: Any) -> None:
        context = get_context("spawn")
        self._theirs, self._ours = context.Pipe(duplex=False)
        self._process = context.Process(target=program, args=(*task, self._theirs), name=name)

    def __enter__(self) -> "ChildProcess":
        with hold_signals():
            self._process.start()
        # The parent closes its copy of the child's end. The child notices the end of the parent by the end of the pipe,
        # even if the parent was killed.
        self._theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._process.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self._process.pid)

    @property
    def ended(self) -> bool:
        """True if the process is not running."""
        return not self._process.is_alive()

    def stop(self) -> None:
        """Close the pipe and wait until the process ends. Kill the process if it needs longer than 30 s."""
        self._ours.close()
        self._process.join(TO_END)
        if not self.ended:
            self._process.kill()
            self._process.join()
