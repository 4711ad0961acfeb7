"""Pickles of any object, made and read as the jobs of worker processes are."""

from typing import Any

from multiprocess.reduction import ForkingPickler

from partbox.supervisor.job_pickling import PicklableJob


def pack(value: Any) -> bytes:
    """Pickle an object as a supervisor does."""
    _, (data, _path) = PicklableJob(value).__reduce__()
    return bytes(data)


def unpack(data: bytes) -> Any:
    """Return the copy that a worker process makes."""
    return ForkingPickler.loads(data)
