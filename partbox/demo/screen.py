"""The output of the demo: a terminal is drawn on, anything else gets a line every few seconds."""

from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from rich.console import Console

from partbox.demo.view import Frame, clock, line, picture
from partbox.operations.stats.happenings import Happening
from partbox.terminal.cluster_view import full_screen

EVERY = 2.0  # seconds between two lines
FOR_PIPES = 300  # columns


class Screen:
    """`live()` is entered around every `show`; `hear` and `say` may be called at any time."""

    def __init__(self, out: TextIO) -> None:
        console = Console(file=out, highlight=False)
        draws = console.is_terminal and not console.is_dumb_terminal
        self._console = console if draws else Console(file=out, highlight=False, width=FOR_PIPES)
        self._live = full_screen(console) if draws else None
        self._due = 0.0

    def live(self) -> AbstractContextManager[object]:
        return self._live or nullcontext()

    def show(self, frame: Frame) -> None:
        """Draw the frame on a terminal; elsewhere print its numbers if the next line is due."""
        if self._live is not None:
            self._live.update(picture(frame, *self._console.size), refresh=True)
        elif frame.elapsed is not None and frame.elapsed >= self._due:
            self._due = frame.elapsed + EVERY
            self.say(line(frame))

    def hear(self, happening: Happening) -> None:
        """Print the happening, unless the next frame shows it."""
        if self._live is None:
            self.say(f"{clock(happening)}{happening.text}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)
        self._console.file.flush()
