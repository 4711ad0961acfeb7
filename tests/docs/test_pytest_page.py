"""The program of the page on FastAPI and SQLAlchemy in pytest passes as it is shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from one_program import CACHE, said

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
(INI,) = re.findall(r"^```ini\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page."""
    for name, text in {**FILES, "pytest.ini": INI}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_tests_of_the_page_on_pytest_pass_as_they_are_shown(folder, server):
    """With nothing set but the server, which is there only to save the time of another."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PARTBOX_", "PG", "PYTEST_"))}
    ended = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=kept | {"PARTBOX_TEST_DSN": server.dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{FILES['test_shop.py'].count('def test_')} passed" in ended.stdout, ended.stdout + ended.stderr
    assert "warning" not in ended.stdout, ended.stdout


def test_the_application_of_the_page_on_pytest_is_well_typed(folder):
    strict = ["mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}", "shop.py"]
    assert said(folder, *strict) == "Success: no issues found in 1 source file\n"
