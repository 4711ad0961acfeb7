"""The table of remedies is whole: each proposal of the sources and each check of doctor has a row with a test."""

import re
import tomllib
from pathlib import Path

import pytest
import remedies

from partbox.doctor.checks import CHECKS

TABLE = Path(__file__).with_name("remedies.md")
ROW = re.compile(r"^\| (.+?) \| (?:`(tests/\S+?\.py)::(test_\w+)`|not run: (\S.+)) \|$", re.MULTILINE)


def tables() -> list[dict[str, re.Match[str]]]:
    """The rows of the remedies, and those of doctor's checks, by their first cells."""
    parts = TABLE.read_text("utf-8").split("\n## Doctor's checks\n")
    return [{row[1].replace("\\|", "|"): row for row in ROW.finditer(part)} for part in parts]


def test_every_remedy_of_the_sources_has_its_row_and_every_row_its_remedy() -> None:
    found, (rows, _) = remedies.found(), tables()
    assert sorted(rows) == sorted(found), "give it a row in tests/docs/remedies.md, with a test that runs it"


def test_every_check_of_doctor_has_its_row() -> None:
    assert [*tables()[1]] == [f"`{check.name}`" for check in CHECKS]


def test_every_row_names_a_test_that_exists() -> None:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = [row for table in tables() for row in table.values()]
    assert len(rows) == len(lines) - 2, "a row says neither which test runs it nor why none does"
    gone = [
        f"{row[2]}::{row[3]}"
        for row in rows
        if row[2] and f"def {row[3]}(" not in (remedies.ROOT / row[2]).read_text("utf-8")
    ]
    assert gone == []


def test_every_extra_that_a_remedy_proposes_to_install_exists() -> None:
    extras = tomllib.loads((remedies.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {name for text in remedies.found() for name in re.findall(r"pip install .partbox\[(\w+)\]", text)}
    assert named <= {*extras}


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("raise E(f'it is {x}: run `partbox migrate {x}`')", "`partbox migrate {}`"),
        ("text = 'end it: `select pg_terminate_backend(7)`'", "`select pg_terminate_backend(7)`"),
        ("case.format_command('purge --archive DIR')", "`partbox purge --archive DIR`"),
        ("f'before that: `{statement(x)}`'", "`{statement(x)}`"),
    ],
)
def test_a_new_remedy_is_found(source: str, remedy: str) -> None:
    assert remedies.proposals(source, made=True) == [remedy]
