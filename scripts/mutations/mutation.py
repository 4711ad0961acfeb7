"""What a mutation is, and how it is made."""

from pathlib import Path
from typing import NamedTuple


class Mutation(NamedTuple):
    """One change of one file: `old`, which occurs there once, becomes `new`; `tests` (pytest ids) must then fail.

    `trap` says in a line what the change leaves out and what that costs.
    """

    name: str
    trap: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def scenario(name: str) -> str:
    """The test that plays this scenario on the model."""
    return f"tests/engine/test_scenarios.py::test_the_engine_answers_as_the_scenario_says[{name}]"


def on_a_server(name: str) -> str:
    """The one that plays it on PostgreSQL."""
    return f"tests/engine/test_scenarios.py::test_on_a_server_it_answers_to_the_same_effect[{name}]"


def problem(mutation: Mutation, root: Path) -> str | None:
    """Why the mutation cannot be made any more below `root`; None if it can."""
    path = root / mutation.file
    if not path.is_file():
        return f"{mutation.file} does not exist"
    found = path.read_text(encoding="utf-8").count(mutation.old)
    if found != 1:
        return f"{mutation.file} holds the text to change {found} times, not once"
    return next((lost for test in mutation.tests if (lost := missing(test, root))), None)


def missing(test: str, root: Path) -> str | None:
    """Why there is no such test; None if there is one."""
    file, _, name = test.partition("::")
    name = name.partition("[")[0]
    path = root / file
    if not path.is_file():
        return f"{file} does not exist"
    if name and f"def {name}(" not in path.read_text(encoding="utf-8"):
        return f"{file} has no {name}"
    return None


def make(mutation: Mutation, root: Path) -> None:
    """Change the file below `root`."""
    path = root / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
