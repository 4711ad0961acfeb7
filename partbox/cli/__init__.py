"""The entry point of the command line. To start fast, it imports little besides the command that was typed."""

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from partbox import standard_streams


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one partbox command and exit the process: 0 for success, 1 for failure, 2 for wrong usage."""
    # After a failure, one line says the reason. If `arguments` is None, the arguments of the process count.
    typed = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        standard_streams.repair_streams()
    standard_streams.reopen_streams()
    with _exit_without_library():
        with _speed_up_imports():
            run = _load_command(typed, hides_secrets=arguments is None)
        with standard_streams.flush_output():
            run()


def command() -> Any:
    """Return the complete partbox command line as a click command."""
    with _exit_without_library():
        from partbox.cli import program

        return program.build_command()


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
def _exit_without_library() -> Iterator[None]:
    # The process exits with one line if a library of the extra `worker` is not installed.
    try:
        yield
    except ImportError as error:
        from partbox.platform import describe_missing

        if (line := describe_missing(error)) is None:
            raise
        sys.exit(f"partbox: error: {line}")


@contextmanager
def _speed_up_imports() -> Iterator[None]:
    # Imports are faster without garbage collection, and Ctrl-C kills the process silently meanwhile.
    # During an import, a KeyboardInterrupt would print a traceback or be dropped. Imported objects stay, so collecting
    # them would take a tenth of the time in vain.
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
