"""Fork safety: a process forked by a handler has the memory of a worker, and must not act as one.

In the child only the forking thread goes on, inside its handler, which may do anything there. When the handler ends,
the child ends as the handler did. It does not run on in its lane, save, report to observers, or run exit hooks. An
application that embeds a worker and forks goes on in its child without that worker."""

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn
from weakref import WeakMethod

from partbox.platform import call_in_forked_children

_fork_hooks: set[WeakMethod[Callable[[], None]]] = set()


def call_when_forked(hook: Callable[[], None]) -> None:
    """Register a bound method to be called in each forked child, as long as the method's object lives."""
    _fork_hooks.add(WeakMethod(hook, _fork_hooks.discard))


def exit_forked(result: object) -> NoReturn:
    """End a forked child process once the event handler that called fork has returned in the child."""
    # The exit code follows from `result`, the handler's value or exception.
    code: Any = 0
    if isinstance(result, SystemExit):
        code = result.code or 0
        if not isinstance(code, int):
            _write_stderr(f"{code}\n")
            code = 1
    elif isinstance(result, BaseException):
        _write_stderr("".join(traceback.format_exception(result)))
        code = 1
    os._exit(code & 0xFF)


def _write_stderr(text: str) -> None:
    # The descriptor is used directly, because another thread may have held the lock of `sys.stderr` at the fork.
    with suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def _call_hooks() -> None:
    for method in list(_fork_hooks):
        if (hook := method()) is not None:
            hook()


call_in_forked_children(_call_hooks)
