"""Where the view goes: a terminal is drawn on, anything else gets a line every few seconds."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live

from partbox.demo.chronicle import Happening
from partbox.demo.view import Frame, line, picture, told

EVERY = 2.0  # seconds between two lines
FOR_PIPES = 300  # columns


class Screen(Protocol):
    """`live()` is entered around every `show`; `hear` may be called at any time."""

    console: Console

    def live(self) -> AbstractContextManager[object]: ...

    def show(self, frame: Frame) -> None: ...

    def hear(self, happening: Happening) -> None: ...


def screen(out: TextIO) -> Screen:
    """The one that fits."""
    console = Console(file=out, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return Drawn(console)
    return Lines(Console(file=out, highlight=False, width=FOR_PIPES))


class Drawn:
    """Uses the terminal's other screen, which comes and goes without a trace and bears being resized."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def live(self) -> AbstractContextManager[object]:
        return self._live

    def show(self, frame: Frame) -> None:
        self._live.update(picture(frame, *self.console.size), refresh=True)

    def hear(self, happening: Happening) -> None:
        """The next frame shows it."""


class Lines:
    """Prints what happens when it happens, and the numbers now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._due = 0.0

    def live(self) -> AbstractContextManager[object]:
        return nullcontext()

    def show(self, frame: Frame) -> None:
        if frame.elapsed is not None and frame.elapsed >= self._due:
            self._due = frame.elapsed + EVERY
            self._print(line(frame))

    def hear(self, happening: Happening) -> None:
        self._print(told(happening))

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False)
        self.console.file.flush()
