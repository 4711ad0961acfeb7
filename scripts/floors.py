"""Fails unless what is installed are the lowest versions that partbox and its extras allow: for --lowest."""

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version


def lowest(document: dict[str, Any]) -> dict[str, Version]:
    """The floor of each library of partbox and its extras that is for this Python; a higher one of the tests counts."""
    project, floors = document["project"], dict[str, Version]()
    ours = list(requirements(chain(project["dependencies"], *project["optional-dependencies"].values())))
    names = {each.name for each in ours}
    for each in chain(ours, requirements(document["dependency-groups"]["test"])):
        for bound in each.specifier:
            if each.name in names and bound.operator == ">=":
                floors[each.name] = max(floors.get(each.name, Version("0")), Version(bound.version))
    return floors


def requirements(lines: Iterator[str]) -> Iterator[Requirement]:
    return (each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate())


document = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
higher = [
    f"{name} {version(name)} instead of {floor}"
    for name, floor in lowest(document).items()
    if Version(version(name)) != floor
]
if higher:
    sys.exit(f"floors: not the lowest versions: {', '.join(higher)}; raise what pyproject.toml asks for to what works")
