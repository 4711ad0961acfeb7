"""The wheels of partbox and of its lab: what is in each, and what may not be in that of partbox."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from partbox import __version__

ROOT = Path(__file__).resolve().parents[2]
OF_THE_LAB = re.compile(r"bench|chaos|harness|partbox_lab|peers")
"""In the name of a file."""
DANGEROUS = re.compile(r"drop (?:schema|database)|setval ?\(|alter sequence|pg_(?:terminate|cancel)_backend|pg_promote")
"""Drops what is not partbox's, moves a sequence on, ends a backend, or makes a standby a primary."""
NAMED = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

BELL = "the flag of the bell is a sequence"
SHOWN = "a remedy for people to read, which nothing runs"
TESTS = "databases that the kit has made for a user's tests"
EXCEPTIONS = {
    "partbox/sql/queries/bell.sql::bell_raise": BELL,
    "partbox/sql/queries/bell.sql::bell_lower": BELL,
    "partbox/sql/queries/life.sql::life_begin": "notes when the server was started, by a sequence of its own",
    "partbox/sql/queries/rebase.sql::rebase_sequence": "moves the ids of a copy past those that are used",
    "partbox/sql/queries/workspace.sql::workspace_drop": "the demo removes the schema that it made",
    "partbox/alembic.py": SHOWN,
    "partbox/db/delivery/proof.py": SHOWN,
    "partbox/demo/workspace.py": SHOWN,
    "partbox/doctor/checks/storage.py": SHOWN,
    "partbox/doctor/phrases.py": SHOWN,
    "partbox/testing/databases.py": TESTS,
    "partbox/testing/servers.py": TESTS,
}
"""The statements and the files that hold such words, and why."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[ZipFile]:
    """That of partbox and that of its lab."""
    folder = tmp_path_factory.mktemp("wheels")
    built = [path for root in (ROOT, ROOT / "lab") for path in WheelBuilder(str(root)).build(directory=str(folder))]
    return [ZipFile(path) for path in built]


def pieces(wheel: ZipFile) -> Iterator[tuple[str, str]]:
    """(name, text) of each named query, and of each other file of SQL or Python."""
    for name in wheel.namelist():
        if name.endswith((".sql", ".py")):
            text = wheel.read(name).decode()
            first, *queries = NAMED.split(text) if "/queries/" in name else [text]
            yield name, first
            yield from ((f"{name}::{query}", body) for query, body in zip(queries[::2], queries[1::2], strict=True))


def test_the_wheel_of_partbox_has_no_file_of_the_lab_and_the_wheel_of_the_lab_has_its_sql(wheels):
    product, lab = (wheel.namelist() for wheel in wheels)
    assert [name for name in product if OF_THE_LAB.search(name)] == []
    assert {"partbox_lab/sql/bench.sql", "partbox_lab/sql/chaos.sql"} <= {*lab}
    assert {name.split("/")[0] for name in lab} == {"partbox_lab", f"partbox_lab-{__version__}.dist-info"}


def test_the_wheel_of_partbox_has_dangerous_statements_in_the_listed_places_only(wheels):
    found = {name for name, text in pieces(wheels[0]) if DANGEROUS.search(text.lower())}
    assert sorted(found) == sorted(EXCEPTIONS)


def test_the_wheel_of_partbox_holds_the_list_of_what_it_requires(wheels):
    listed = json.loads(wheels[0].read(f"partbox-{__version__}.dist-info/sboms/partbox.cdx.json"))
    root = listed["metadata"]["component"]
    assert (root["name"], root["version"]) == ("partbox", __version__), "run scripts/build"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    said = {each["description"].partition(": ")[2] for each in listed["components"]}
    assert said == {*wanted}, "run scripts/build"


def test_partbox_and_the_lab_have_the_same_version_and_require_it_of_each_other():
    product, lab = (tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"] for name in (".", "lab"))
    assert product["version"] == lab["version"] == __version__
    assert lab["dependencies"] == [f"partbox[binary,worker]=={__version__}"]
    assert product["optional-dependencies"]["lab"] == [f"partbox-lab=={__version__}"]
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "lab" / "LICENSE").read_bytes()
