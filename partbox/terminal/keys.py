"""Single key presses, without Enter."""

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from partbox.platform import IS_WINDOWS


class Keys:
    """The keys typed at a terminal (None: no key ever comes)."""

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal

    def wait(self, seconds: float) -> str:
        """The first keys pressed within this time; "" if there were none."""
        if self._terminal is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(self._terminal, 64)
        if not typed:  # the terminal was hung up
            self._terminal = None
        return typed.decode(errors="replace")


@contextmanager
def keys() -> Iterator[Keys]:
    """The keys of the standard input, without echo; afterwards the terminal is as it was."""
    if IS_WINDOWS or not sys.stdin.isatty():
        yield Keys(None)
        return
    import termios  # Windows has none
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield Keys(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
