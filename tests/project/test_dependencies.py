"""docs/dependencies.md names every dependency, and no other."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, GROUPS = DOCUMENT["project"], DOCUMENT["dependency-groups"]
CELLS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def asked() -> dict[str, set[str]]:
    """The extras and the groups that ask for each library; none if it is always there. The lab is our own."""
    found: dict[str, set[str]] = {}
    for place, wanted in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"], **GROUPS}.items():
        for name in (Requirement(each).name for each in wanted if isinstance(each, str)):
            if name not in ("partbox", "partbox-lab"):
                found.setdefault(name, set()).update({place} - {""})
    return found


def test_every_dependency_is_listed_with_a_reason_and_no_other_is_listed():
    assert sorted({name for first, *_ in CELLS for name in named(first)}) == sorted(asked())


def test_each_library_is_listed_with_the_extras_and_groups_that_require_it():
    places = {*PROJECT["optional-dependencies"], *GROUPS}
    wrong = [
        name
        for first, second, *_ in CELLS
        if (told := set(named(second)) & places)
        for name in named(first)
        if not told & asked()[name]
    ]
    assert wrong == []
    always = [name for name, wanted in asked().items() if not wanted]
    assert [name for first, *rest in CELLS for name in named(first) if len(rest) == 3 and name in always] == always


def test_a_user_sees_only_extras_that_are_for_users():
    developers = {"test", "test-frameworks", "soak", "docs", "dev"}
    assert set(GROUPS) == developers
    assert developers.isdisjoint(PROJECT["optional-dependencies"])


def test_every_extra_of_partbox_that_a_group_names_exists():
    of_partbox = [Requirement(each) for group in GROUPS.values() for each in group if isinstance(each, str)]
    asked_for = {extra for each in of_partbox if each.name == "partbox" for extra in each.extras}
    assert asked_for <= set(PROJECT["optional-dependencies"])
    assert "kafka" in asked_for
