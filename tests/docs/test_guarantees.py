"""Every promise of docs/guarantees.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
TEST = re.compile(r"`((?:lab/)?tests/[\w/]+\.py)::(test_\w+)(?:\[\w+\])?`")
SCENARIO = re.compile(r"test_scenarios\.py::test_\w+\[(\w+)\]`")
PROMISE = re.compile(r"^- (.*?)(?=^- |^## |\Z)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("file", "name"), sorted(set(TEST.findall(PAGE))), ids=lambda part: Path(part).stem)
def test_every_test_that_is_named_for_a_guarantee_exists(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", SCENARIO.findall(PAGE))
def test_every_scenario_that_is_named_for_a_guarantee_exists(name: str) -> None:
    assert (ROOT / "tests/engine/scenarios" / f"{name}.txt").is_file()


def test_every_guarantee_names_its_test() -> None:
    promised, _, not_promised = PAGE.partition("## Not promised")
    assert not_promised
    without = [promise for promise in PROMISE.findall(promised) if not TEST.search(promise)]
    assert without == []


def test_every_test_name_in_backquotes_is_a_test() -> None:
    assert len(re.findall(r"tests/[\w/]+\.py", PAGE)) == len(TEST.findall(PAGE))
