"""A job on its way to a worker process, where it is opened once the process has what it needs for itself.

A spawned process gets the `sys.path` of the one that spawns it before it imports anything. By then an application has
changed that perhaps: what partbox imports would come from the application's folder, or not be found at all. So the
process begins with the path by which partbox was found, and takes the application's together with the job.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from threading import Lock
from typing import Any, Final

from multiprocess import popen_spawn_posix, sharedctypes  # noqa: F401 (it would load them later, by another path)
from multiprocess.reduction import ForkingPickler

PATH: Final = tuple(sys.path)
"""The path when this was imported: `partbox worker` does so before it imports an application."""
VERSION: Final = version("partbox")
"""Ours, looked up by that path."""
_swapping = Lock()  # held while `sys.path` is not the application's


@contextmanager
def by_own_path() -> Iterator[None]:
    """Spawn processes that begin with `PATH`."""
    # One at a time: the supervisors of several databases spawn in threads of one process, and each would put back what
    # the other had put there.
    with _swapping:
        given, sys.path = sys.path, [*PATH]
        try:
            yield
        finally:
            sys.path = given


class Parcel:
    """A job as bytes, with the path by which its modules are found."""

    def __init__(self, data: bytes, path: list[str]) -> None:
        self._data = data
        self._path = path

    def open(self) -> Any:
        """The job; `sys.path` is the application's from now on."""
        sys.path[:] = self._path
        return ForkingPickler.loads(self._data)


class Packing:
    """The same before it is sent: it becomes a parcel while the process is spawned, which some contents must be."""

    def __init__(self, job: Any) -> None:
        self._job = job
        with _swapping:
            self._path = [*dict.fromkeys((*sys.path, *PATH))]

    def __reduce__(self) -> tuple[Any, ...]:
        return Parcel, (bytes(ForkingPickler.dumps(self._job)), self._path)
