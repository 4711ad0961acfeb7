"""The standard streams of a process: always open, and able to show every text. If a stream is closed, the next file or
socket would get its number, and programs that use standard streams would read and write that file."""

import codecs
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
ESCAPE: Final = "partbox.escape"
# Error handlers to replace. The last one writes escapes that are not valid JSON.
RAISING: Final = ("strict", "surrogateescape", "backslashreplace")


def repair_streams() -> None:
    """Make printing safe: open closed standard streams, and escape characters that a stream cannot encode."""
    reopen_streams()
    codecs.register_error(ESCAPE, _escape_character)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and stream.errors in RAISING:
            stream.reconfigure(errors=ESCAPE)


def reopen_streams() -> None:
    """Open closed standard streams on /dev/null, also for processes that are spawned later."""
    for number, (name, mode) in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The new descriptor gets the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  open for the rest of the process


@contextmanager
def flush_output() -> Iterator[None]:
    """Flush standard output at the end of the `with` block, and exit with code 1 if that fails."""
    # The exit is silent if the reader of the output has gone.
    retried = ""
    try:
        yield
    except OSError as error:
        # If the output caused the error, this write fails too, and the exit below reports it.
        retried = "" if error.filename else "\n"
        raise
    finally:
        try:
            sys.stdout.write(retried)
            sys.stdout.flush()
        except OSError as error:
            # Python flushes again at the exit, and would print a traceback.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            gone = error.errno == errno.EPIPE
            sys.exit(1 if gone else f"partbox: the standard output cannot be written: {error.strerror}")


def _escape_character(error: UnicodeError) -> tuple[str, int]:
    """Return the JSON escape for a character that an output stream cannot encode."""
    # Printed JSON remains JSON by that.
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(f"\\u{pair:04x}" for pair in pairs), error.end
