"""The transport of a job to a worker process, which unpickles it after its own imports.

A spawned process gets the `sys.path` of its parent before it imports anything. By then an application may have changed
that path, so partbox's imports would come from the application's folder or fail. Therefore the process begins with the
path by which partbox was found, and takes the application's path together with the job."""

import marshal
import sys
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, Final, cast

# Some modules are unused here. Otherwise multiprocess would load them at a spawn, by the application's path.
from multiprocess import popen_spawn_posix, process, resource_tracker, sharedctypes, spawn, synchronize  # noqa: F401
from multiprocess.context import SpawnProcess
from multiprocess.reduction import ForkingPickler

from partbox.classes import ClassKind, kind_of
from partbox.errors import RegistrationError
from partbox.events.declaration import event_type_of
from partbox.hosts import patch_first

# The path when this module was imported. `partbox worker` imports it before an application.
PATH: Final = tuple(each or process.ORIGINAL_DIR or each for each in sys.path)


def _build_preparation_data(name: str) -> dict[str, Any]:
    # Multiprocessing sends the data. `PATH` is the path by which partbox was found, and it replaces `sys.path`.
    return {**spawn.get_preparation_data(name), "sys_path": [*PATH]}


def _build_command_line(**keywords: Any) -> list[str]:
    # The process runs a short program, the argument after `-c`. It imports partbox, and gevent must patch before that.
    command: list[str] = spawn.get_command_line(**keywords)
    program = command.index("-c") + 1
    command[program] = patch_first(command[program])
    return command


class _Popen(popen_spawn_posix.Popen):  # type: ignore[misc]
    """A spawned process that imports modules by the same `sys.path` by which partbox was imported."""

    # The inherited function with another `spawn` among its globals. Neither `sys.path` nor the module may be changed
    # even for some milliseconds, because other threads of the application import and spawn meanwhile.
    _launch = FunctionType(
        popen_spawn_posix.Popen._launch.__code__,
        vars(popen_spawn_posix)
        | {
            "spawn": SimpleNamespace(
                **vars(spawn)
                | {"get_preparation_data": _build_preparation_data, "get_command_line": _build_command_line}
            )
        },
    )


class SpawnedWorker(SpawnProcess):  # type: ignore[misc]
    """A spawned process that can import partbox even if the application has changed `sys.path`.

    The process imports by `PATH`."""

    @staticmethod
    def _Popen(process: SpawnProcess) -> _Popen:
        return _Popen(process)


class _Pickler(ForkingPickler):  # type: ignore[misc]
    """A multiprocessing pickler that pickles classes of the main program by name, and code by `marshal`.

    By value, an event class would differ from the class in the program's module, which a worker process runs too, and a
    Struct cannot be pickled so."""

    def reducer_override(self, value: Any) -> Any:
        # dill 0.4.1 reads an attribute of code that Python 3.15 has no more.
        if isinstance(value, CodeType):
            return marshal.loads, (marshal.dumps(value),)
        if not isinstance(value, type) or value.__module__ != "__main__" or not _is_found_by_name(value):
            return NotImplemented
        return _load_class, (value.__qualname__,)


def _is_found_by_name(cls: type) -> bool:
    main = sys.modules["__main__"]
    is_ours = event_type_of(cls) is not None or kind_of(cast(Any, cls)) is ClassKind.MSGSPEC
    return is_ours and hasattr(main, "__file__") and _find_in_main(cls.__qualname__) is cls


def _find_in_main(name: str) -> Any:
    found: Any = sys.modules["__main__"]
    for step in name.split("."):
        found = getattr(found, step, None)
    return found


def _load_class(name: str) -> Any:
    found = _find_in_main(name)
    if isinstance(found, type):
        return found
    raise RegistrationError(
        f"there is no class {name} in a worker process: define it outside of `if __name__ == '__main__':`, so that "
        "importing the program defines it"
    )


class PickledJob:
    """The pickled parameters of a worker process, with the import path that unpickling them needs."""

    def __init__(self, data: bytes, path: list[str]) -> None:
        self._data = data
        self._path = path

    def unpickle_job(self) -> Any:
        """Unpickle the parameters of the worker process, after setting the application's `sys.path`."""
        sys.path[:] = self._path
        return ForkingPickler.loads(self._data)


class PicklableJob:
    """A wrapper that delays the pickling of a worker's parameters until the process is spawned.

    They are pickled as a `PickledJob`. Some contents can only be pickled then."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self._path = [*dict.fromkeys((*sys.path, *PATH))]

    def __reduce__(self) -> tuple[Any, ...]:
        return PickledJob, (bytes(_Pickler.dumps(self._job)), self._path)
