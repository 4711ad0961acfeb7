"""The standard streams of a process: open, whoever started it, and able to show every text.

Where one is closed, the next file, socket or piece of shared memory would get its number, and be read and written by
all who believe in standard streams, the processes that this one spawns above all.
"""

import codecs
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
ESCAPE: Final = "partbox.escape"
RAISING: Final = ("strict", "surrogateescape", "backslashreplace")  # the last one writes what is no JSON


def repair_streams() -> None:
    """Open those that are closed on /dev/null, and have them escape what they cannot encode."""
    reopen_streams()
    codecs.register_error(ESCAPE, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and stream.errors in RAISING:
            stream.reconfigure(errors=ESCAPE)


def reopen_streams() -> None:
    """Open those that are closed on /dev/null; processes that are spawned have them too."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (for good)


@contextmanager
def flush_output() -> Iterator[None]:
    """Write all that the block prints; exit with 1 where the output takes nothing, silently if its reader has gone."""
    retried = ""
    try:
        yield
    except OSError as error:
        retried = "" if error.filename else "\n"  # if the output is the cause, this fails too
        raise
    finally:
        try:
            sys.stdout.write(retried)
            sys.stdout.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes at the end too, and would print a trace
            gone = error.errno == errno.EPIPE
            sys.exit(1 if gone else f"partbox: the standard output cannot be written: {error.strerror}")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """As JSON escapes it, so that what is JSON stays so."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(f"\\u{pair:04x}" for pair in pairs), error.end
