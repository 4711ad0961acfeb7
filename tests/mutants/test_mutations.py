"""Every mutation still applies: its text stands in the code once, and the tests that catch it exist.

That they do catch it shows `scripts/mutants`, which takes minutes.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutations import MUTATIONS  # noqa: E402 (the scripts are no package)
from mutations.mutation import Mutation, make, missing, problem  # noqa: E402


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_applies_and_names_tests_that_exist(mutation: Mutation) -> None:
    assert problem(mutation, ROOT) is None
    assert mutation.tests
    assert mutation.old != mutation.new


def test_names_of_mutations_are_unique() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text("a = 1\nb = 2\nb = 2\n")
    (tmp_path / "test_code.py").write_text("def test_it(): ...\n")
    return tmp_path


def mutation(old: str, *tests: str, file: str = "code.py") -> Mutation:
    return Mutation("name", "trap", file, old, "c = 3", tests)


def test_a_mutation_that_no_longer_applies_is_reported(small: Path) -> None:
    assert problem(mutation("a = 1", "test_code.py::test_it", "test_code.py"), small) is None
    assert problem(mutation("z = 1"), small) == "code.py holds the text to change 0 times, not once"
    assert problem(mutation("b = 2"), small) == "code.py holds the text to change 2 times, not once"
    assert problem(mutation("a = 1", file="gone.py"), small) == "gone.py does not exist"
    assert problem(mutation("a = 1", "test_code.py::test_other"), small) == "test_code.py has no test_other"
    assert missing("gone.py::test_it[x]", small) == "gone.py does not exist"


def test_a_mutation_changes_its_file_only(small: Path) -> None:
    make(mutation("a = 1"), small)
    assert (small / "code.py").read_text() == "c = 3\nb = 2\nb = 2\n"


def test_comments_neither_hide_the_text_to_change_nor_stay_in_the_way(small: Path) -> None:
    (small / "code.py").write_text("def f():\n    a = 1  # why\n    # and why\n    return '# a'\n")
    change = mutation("    a = 1\n    return '# a'", "test_code.py::test_it")
    assert problem(change, small) is None
    make(change, small)
    assert (small / "code.py").read_text() == "def f():\nc = 3\n"
