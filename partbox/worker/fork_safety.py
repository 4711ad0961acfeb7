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

from partbox.platform import in_forked_children

_disown: set[WeakMethod[Callable[[], None]]] = set()


def tell_forked(disown: Callable[[], None]) -> None:
    """Call this method in every process that is forked, as long as its object lives."""
    _disown.add(WeakMethod(disown, _disown.discard))


def leave(result: object) -> NoReturn:
    """End this process, which was forked by a handler that has ended with `result`."""
    code: Any = 0
    if isinstance(result, SystemExit):
        code = result.code or 0
        if not isinstance(code, int):
            _say(f"{code}\n")
            code = 1
    elif isinstance(result, BaseException):
        _say("".join(traceback.format_exception(result)))
        code = 1
    os._exit(code & 0xFF)


def _say(text: str) -> None:
    """To stderr, past its buffer: another thread may have held that when this process was forked."""
    with suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def _forked() -> None:
    for method in list(_disown):
        if (disown := method()) is not None:
            disown()


in_forked_children(_forked)
