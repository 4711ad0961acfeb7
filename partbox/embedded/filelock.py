"""A lock on a file between processes. It vanishes with its holder, however that one ends.

Windows has no fcntl, and no embedded server; what imports this file must load there all the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` (made if missing) alone; waits for whoever holds it, threads of this process included."""
    import fcntl

    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def shared(path: Path) -> IO[bytes]:
    """Hold `path` together with others until the returned file is closed."""
    import fcntl

    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def alone(file: IO[bytes]) -> bool:
    """True if nobody else holds what `shared` returned; the hold has then become exclusive. Never waits."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
