"""What a mutation is, and how it is made."""

import io
import tokenize
from pathlib import Path
from typing import NamedTuple


class Mutation(NamedTuple):
    """One change of one file: `old`, which occurs once in its code, becomes `new`; `tests` (pytest ids) must then fail.

    Neither text has a comment, for `code_of` leaves comments out. `trap` says in one line which rule the change breaks,
    and the cost of that.
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
    return f"tests/engine/test_scenarios.py::test_the_engine_on_a_server_answers_to_the_same_effect[{name}]"


def problem(mutation: Mutation, root: Path) -> str | None:
    """Why the mutation cannot be made any more below `root`; None if it can."""
    path = root / mutation.file
    if not path.is_file():
        return f"{mutation.file} does not exist"
    found = code_of(path).count(mutation.old)
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
    path.write_text(code_of(path).replace(mutation.old, mutation.new), encoding="utf-8")


def code_of(path: Path) -> str:
    """Return the text of a file; of Python without its comments, which may change while a mutation stays the same."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    lines: list[str | None] = [*text.splitlines(keepends=True)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            code = token.line[:column].rstrip()
            lines[row - 1] = f"{code}\n" if code else None
    return "".join(line for line in lines if line is not None)
