"""The command line. One command a file; errors become one line on the standard error output.

This file imports next to nothing: the first thing that a process does is to make itself independent of how it was
started, and `program` loads no more than the command that was typed.
"""

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from partbox import standard_streams


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 = done, 1 = it failed (one line says why), 2 = wrong usage."""
    typed = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        standard_streams.repair_streams()
    standard_streams.reopen_streams()
    with _loading():
        run = _load_command(typed, hides_secrets=arguments is None)
    with standard_streams.flush_output():
        run()


def command() -> Any:
    """The whole command line."""
    from partbox.cli import program

    return program.command()


def _load_command(typed: Sequence[str], *, hides_secrets: bool) -> Callable[[], NoReturn]:
    if [*typed] == ["--version"]:
        from partbox.cli.shell.version import print_versions

        return print_versions
    from partbox.cli.shell.arguments import hide_secrets

    if hides_secrets:
        hide_secrets()
    from partbox.cli import program

    return program.load_command(typed)  # type: ignore[no-any-return]


@contextmanager
def _loading() -> Iterator[None]:
    """Ctrl-C ends the process at once and silently: an import would print a traceback, or drop it.

    What is imported stays, so looking for cycles among it is a tenth of the time for nothing.
    """
    had_default_handler, had_gc = signal.getsignal(signal.SIGINT) is signal.default_int_handler, gc.isenabled()
    gc.disable()
    if had_default_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if had_default_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if had_gc:
            gc.enable()
