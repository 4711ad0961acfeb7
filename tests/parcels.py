"""What worker processes get, packed and unpacked as their jobs are."""

from typing import Any

from multiprocess.reduction import ForkingPickler

from partbox.supervisor.job_pickling import PicklableJob


def pack(thing: Any) -> bytes:
    """Pickle a thing as a supervisor does."""
    _, (data, _path) = PicklableJob(thing).__reduce__()
    return bytes(data)


def unpack(data: bytes) -> Any:
    """Return the copy that a worker process makes."""
    return ForkingPickler.loads(data)
