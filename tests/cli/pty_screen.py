"""A command of partbox on a terminal of its own, seen and typed at as by a person."""

import errno
import fcntl
import os
import re
import select
import struct
import termios
import time
from types import TracebackType

from forked_commands import Forks

CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])")
FRAME = re.compile(r"\x1b\[H|\x1b\[\d*A|\x1b\[2J")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SIZE = ("COLUMNS", "LINES")  # of another terminal
PATIENCE = 120.0


class Screen:
    """Runs it, without colours, until the block ends."""

    def __init__(self, forks: Forks, *arguments: str, dsn: str, width: int = 120, height: int = 40) -> None:
        self._master, self._slave = os.openpty()
        self.resize(width, height)
        self._before = termios.tcgetattr(self._slave)
        environment = {name: value for name, value in os.environ.items() if name not in SIZE}
        environment |= {"TERM": "xterm", "NO_COLOR": "1", "PARTBOX_DSN": dsn}
        self._process = forks.start_on(self._slave, "partbox", *arguments, env=environment)
        self.raw = ""

    def __enter__(self) -> "Screen":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)
        os.close(self._slave)

    @property
    def text(self) -> str:
        """What was drawn last, without colours and movements."""
        frames = [CONTROL.sub("", frame) for frame in FRAME.split(self.raw)]
        whole = [frame for frame in frames if len(frame.strip()) > 20]
        return whole[-1].replace("\r", "") if whole else CONTROL.sub("", self.raw)

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was before: its modes, its cursor, its screen."""
        modes = termios.tcgetattr(self._slave) == self._before
        screens = self.raw.count(ENTER) == self.raw.count(LEAVE)
        return modes and screens and self.raw.rfind(SHOW) >= self.raw.rfind(HIDE)

    def said(self, sequence: str) -> bool:
        """Whether it has sent this to the terminal."""
        return sequence in self.raw

    def until(self, word: str) -> str:
        """Read until a frame holds the word; that frame."""
        end = time.monotonic() + PATIENCE
        while word not in self.text:
            assert time.monotonic() < end, f"{word!r} was never seen in: {self.text}"
            assert self._read() or self._process.poll() is None, f"ended without {word!r}: {self.text}"
        return self.text

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self.text}"
            self._read()
        while self._read():
            pass
        return self._process.wait()

    def _read(self) -> bool:
        """Take what it has written; False if that is nothing for a moment."""
        if not select.select([self._master], [], [], 0.05)[0]:
            return False
        try:
            self.raw += os.read(self._master, 65_536).decode(errors="replace")
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True
