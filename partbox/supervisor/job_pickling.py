"""A job on its way to a worker process, where it is opened once the process has what it needs for itself.

A spawned process gets the `sys.path` of the one that spawns it before it imports anything. By then an application has
changed that perhaps: what partbox imports would come from the application's folder, or not be found at all. So the
process begins with the path by which partbox was found, and takes the application's together with the job.
"""

import sys
from importlib.metadata import version
from types import FunctionType, SimpleNamespace
from typing import Any, Final, cast

# Some are not used here: multiprocess would load them when it spawns, by the application's path.
from multiprocess import popen_spawn_posix, process, resource_tracker, sharedctypes, spawn, synchronize  # noqa: F401
from multiprocess.context import SpawnProcess
from multiprocess.reduction import ForkingPickler

from partbox.classes import ClassKind, kind_of
from partbox.errors import RegistrationError
from partbox.events.declaration import event_type_of

PATH: Final = tuple(each or process.ORIGINAL_DIR or each for each in sys.path)
"""The path when this was imported: `partbox worker` does so before it imports an application."""
VERSION: Final = version("partbox")
"""Ours, looked up by that path."""


def _preparation_data(name: str) -> dict[str, Any]:
    """The data that a process has before it imports anything: as multiprocess makes it, but for the path."""
    return {**spawn.get_preparation_data(name), "sys_path": [*PATH]}


class _Popen(popen_spawn_posix.Popen):  # type: ignore[misc]
    """Spawns as multiprocess does, with data of our own."""

    # Its own function with another `spawn` among its globals. `sys.path` itself, or the module, cannot be changed for
    # some milliseconds: other threads of the application import, and spawn, meanwhile.
    _launch = FunctionType(
        popen_spawn_posix.Popen._launch.__code__,
        vars(popen_spawn_posix)
        | {"spawn": SimpleNamespace(**vars(spawn) | {"get_preparation_data": _preparation_data})},
    )


class SpawnedWorker(SpawnProcess):  # type: ignore[misc]
    """A process that begins with `PATH`."""

    @staticmethod
    def _Popen(process: SpawnProcess) -> _Popen:
        return _Popen(process)


class _Pickler(ForkingPickler):  # type: ignore[misc]
    """Pickles as multiprocess does, but for event classes of the program itself: by name.

    A worker process runs the program's module too. By value, which is how functions of it travel, a class would be
    another one there than that of its module, and a Struct cannot be made so.
    """

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, type) or value.__module__ != "__main__" or not _is_found_by_name(value):
            return NotImplemented
        return _load_class, (value.__qualname__,)


def _is_found_by_name(cls: type) -> bool:
    main = sys.modules["__main__"]
    is_ours = event_type_of(cls) is not None or kind_of(cast(Any, cls)) is ClassKind.MSGSPEC
    return is_ours and hasattr(main, "__file__") and _find(cls.__qualname__) is cls


def _find(name: str) -> Any:
    found: Any = sys.modules["__main__"]
    for step in name.split("."):
        found = getattr(found, step, None)
    return found


def _load_class(name: str) -> Any:
    found = _find(name)
    if isinstance(found, type):
        return found
    raise RegistrationError(
        f"there is no class {name} in a worker process: define it where importing the program defines it, not under "
        "`if __name__ == '__main__':`"
    )


class PickledJob:
    """A job as bytes, with the path by which its modules are found."""

    def __init__(self, data: bytes, path: list[str]) -> None:
        self._data = data
        self._path = path

    def open(self) -> Any:
        """The job; `sys.path` is the application's from now on."""
        sys.path[:] = self._path
        return ForkingPickler.loads(self._data)


class PicklableJob:
    """The same before it is sent: it becomes a parcel while the process is spawned, which some contents must be."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self._path = [*dict.fromkeys((*sys.path, *PATH))]

    def __reduce__(self) -> tuple[Any, ...]:
        return PickledJob, (bytes(_Pickler.dumps(self._job)), self._path)
