"""docs/dependencies.md names every dependency, and no other."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CELLS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def asked() -> dict[str, set[str]]:
    """The extras that ask for each library; none if it is always there. The lab is our own."""
    found: dict[str, set[str]] = {}
    for extra, group in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items():
        for name in (Requirement(each).name for each in group):
            if name not in ("partbox", "partbox-lab"):
                found.setdefault(name, set()).update({extra} - {""})
    return found


def test_every_dependency_has_its_reason_and_there_is_no_other():
    assert sorted({name for first, *_ in CELLS for name in named(first)}) == sorted(asked())


def test_a_library_is_beside_the_extras_that_ask_for_it():
    extras = set(PROJECT["optional-dependencies"])
    wrong = [
        name
        for first, second, *_ in CELLS
        if (told := set(named(second)) & extras)
        for name in named(first)
        if not told & asked()[name]
    ]
    assert wrong == []
    always = [name for name, wanted in asked().items() if not wanted]
    assert [name for first, *rest in CELLS for name in named(first) if len(rest) == 3 and name in always] == always
