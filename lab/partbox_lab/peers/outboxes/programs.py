"""The programs that consume."""

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "workers"


def program(name: str) -> str:
    """The path of a worker's program."""
    return str(_FOLDER / name)
