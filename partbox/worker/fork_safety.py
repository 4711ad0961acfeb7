"""Processes that a handler forks. They have a worker's memory, and are none.

In such a process only the thread that forked goes on, inside its handler. It may do what it likes there (run the target
of `multiprocessing`, exec), but once the handler has ended the process ends, as the handler did: without walking on,
saving, telling, or running what is to run at an exit. An application with a worker embedded that forks goes on in its
child without that worker.
"""

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn
from weakref import WeakMethod

from partbox.platform import call_in_forked_children

_fork_hooks: set[WeakMethod[Callable[[], None]]] = set()


def call_when_forked(hook: Callable[[], None]) -> None:
    """Call this method in every process that is forked, as long as its object lives."""
    _fork_hooks.add(WeakMethod(hook, _fork_hooks.discard))


def exit_forked(result: object) -> NoReturn:
    """End this process, which was forked by a handler that has ended with `result`."""
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
    """To stderr, past its buffer: another thread may have held that when this process was forked."""
    with suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def _call_hooks() -> None:
    for method in list(_fork_hooks):
        if (hook := method()) is not None:
            hook()


call_in_forked_children(_call_hooks)
