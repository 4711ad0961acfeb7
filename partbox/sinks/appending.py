"""Appends whole lines to a file or to the standard output: all of what is given gets there, or none of it.

`write` may take a part: of a disk that is full, of a file that has a limit. A torn line would swallow the line that
comes next, so what was taken is cut off again. Processes append one at a time, by a lock of the file that forked
processes do not share, as they share the standard output; otherwise a cut could hit the line of another process.
"""

import errno
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_lock = threading.Lock()  # locks of files do not keep threads apart


def open_for_append(path: Path) -> int:
    """The descriptor of a file to append to, made if it is missing. OSError."""
    is_plain = not path.exists() or (path.is_file() and os.access(path, os.R_OK))
    # Readable where it can be, to see whether its last line is whole; a pipe opened so would never wait for a reader.
    access = os.O_RDWR if is_plain else os.O_WRONLY
    return os.open(path, access | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def append(path: Path, lines: bytes) -> None:
    """Append lines to the file and sync it. OSError if they are not there."""
    handle = open_for_append(path)
    try:
        with _lock_file(handle):
            _write_all(handle, b"\n" + lines if _is_torn(handle) else lines, synced=True)
    finally:
        os.close(handle)


def append_to_stdout(lines: bytes) -> None:
    """Print lines. OSError if they are not there."""
    sys.stdout.flush()  # what the application has printed stands before them
    handle = sys.stdout.fileno()
    with _lock_file(handle):
        _write_all(handle, lines, synced=False)


@contextmanager
def _lock_file(handle: int) -> Iterator[None]:
    """Keep others from appending to this file or pipe: to a pipe more than a page is not written in one go."""
    import fcntl  # Windows has none, and runs no worker

    kind = os.fstat(handle).st_mode
    with _lock:
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
            yield
            return
        fcntl.lockf(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(handle, fcntl.LOCK_UN)


def _write_all(handle: int, lines: bytes, *, synced: bool) -> None:
    remaining = memoryview(lines)
    try:
        while remaining:
            try:
                remaining = remaining[os.write(handle, remaining) :]
            except BlockingIOError:  # another process that shares a pipe made it non-blocking
                select.select((), (handle,), ())
        if synced:
            _sync(handle)
    except OSError:
        _truncate_written(handle, len(lines) - len(remaining))
        raise


def _truncate_written(handle: int, written: int) -> None:
    """Take back what was written last, unless somebody without the lock has written since."""
    with suppress(OSError):  # a pipe; a file that can only grow, whose next line then begins with a break
        end = os.lseek(handle, 0, os.SEEK_CUR)
        if written and os.fstat(handle).st_size == end:
            os.ftruncate(handle, end - written)
            os.lseek(handle, end - written, os.SEEK_SET)


def _is_torn(handle: int) -> bool:
    """True if the file ends within a line, as a process that was killed or a machine that went down leaves it."""
    size = os.fstat(handle).st_size
    with suppress(OSError):
        return size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    return False


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a pipe or a device, which has no disk behind it
            raise
