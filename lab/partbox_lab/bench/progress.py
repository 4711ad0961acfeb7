"""Progress lines of a running bench."""

import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from partbox_lab.bench.budget import LineResult
from partbox_lab.bench.report import STYLES, shown

FOR_PIPES = 300  # columns


class BenchProgress:
    """A printer of progress lines, each with the seconds since the start. `lines` is the number of all lines."""

    def __init__(self, out: TextIO, lines: int) -> None:
        console = Console(file=out, highlight=False)
        self._console = console if console.is_terminal else Console(file=out, highlight=False, width=FOR_PIPES)
        self._lines = lines
        self._began = time.monotonic()
        self._done = 0

    def say(self, text: str) -> None:
        """Print a line of text."""
        self._print(Text(text))

    def begin(self, names: Sequence[str]) -> None:
        """Print which lines are measured next."""
        self._print(Text(f"[{self._done + 1}/{self._lines}] measuring {', '.join(names)} ...", "bright_black"))

    def tell(self, result: LineResult) -> None:
        """Print the result of a line."""
        self._done += 1
        value = shown(result) if result.value is not None else result.note
        verdict = (result.standing.value, STYLES[result.standing])
        self._print(Text.assemble(f"  {result.budget.name}  {value}  (budget {result.budget.shown()})  ", verdict))

    def _print(self, text: Text) -> None:
        passed = Text(f"{time.monotonic() - self._began:5.0f} s  ", "bright_black")
        self._console.print(passed + text, soft_wrap=True)
        self._console.file.flush()
