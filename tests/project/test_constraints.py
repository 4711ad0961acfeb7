""".ci/constraints.txt, the versions that CI installs."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
LOCKED = [Requirement(line) for line in LINES if line.strip() and not line.strip().startswith("#")]
AGAIN = "run scripts/lock"


def asked() -> list[Requirement]:
    """The requirements of pyproject.toml, without partbox and partbox-lab themselves."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    named = [project["project"]["dependencies"], *extras.values(), *groups.values()]
    every = [Requirement(each) for group in named for each in group if isinstance(each, str)]
    return [each for each in every if each.name not in ("partbox", "partbox-lab")]


def test_every_required_package_has_a_constraint_that_its_requirement_allows():
    versions: dict[str, list[str]] = {}
    for each in LOCKED:
        versions.setdefault(canonicalize_name(each.name), []).extend(pin.version for pin in each.specifier)
    for each in asked():
        chosen = versions.get(canonicalize_name(each.name))
        assert chosen, f"{each.name} is not in .ci/constraints.txt: {AGAIN}"
        assert all(each.specifier.contains(version, prereleases=True) for version in chosen), f"{each}: {AGAIN}"


def test_each_constraint_is_a_name_and_one_version_without_an_index():
    assert all(each.url is None and [pin.operator for pin in each.specifier] == ["=="] for each in LOCKED)
    assert not [line for line in LINES if line.startswith("-")]
