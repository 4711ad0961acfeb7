"""docs/tutorial.md as those read it who type it: scripts/tutorial.py and a test."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
CONFIRM = re.compile(r"@outbox\.on\(OrderPlaced\)\ndef confirm.*?\n(?=\n|\Z)", re.DOTALL)
VARIES = re.compile(r"\d[\d.]*(?= (?:ms|s|m|attempts|causes)\b)")
DUE = re.compile(r"next in N (?:ms|s|m)|due now")


def blocks(kind: str) -> list[str]:
    """All of one kind, in the order of the page: `console`, `python` or `text`."""
    return [text for each, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if each == kind]


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a console, and what the page shows below it, which may be nothing."""
    return COMMAND.findall(block)


def with_confirm(program: str, function: str) -> str:
    """The program with another handler of placed orders."""
    changed, count = CONFIRM.subn(lambda _: function, program)
    assert count == 1, program
    return changed


def alike(printed: str) -> str:
    """What is the same at each run: without durations, attempts, and the number of causes that doctor knows."""
    return DUE.sub("due", VARIES.sub("N", printed))
