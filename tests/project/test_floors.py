"""The check of `scripts/test --lowest` that what is installed are the lowest versions."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("place", ["dependencies", "extras"])
def test_an_installed_version_newer_than_its_minimum_is_named_and_the_minimum_itself_is_not(tmp_path, place):
    def check(floor: str) -> tuple[int, str]:
        asked = [f'"pluggy>={floor}"' if each == place else "" for each in ("dependencies", "extras")]
        document = tmp_path / "pyproject.toml"
        document.write_text(
            f"[project]\ndependencies = [{asked[0]}]\noptional-dependencies.some = [{asked[1]}]\n"
            "[dependency-groups]\ntest = []\n"
        )
        command = [sys.executable, ROOT / "scripts" / "floors.py", document]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    installed = version("pluggy")
    assert check(installed) == (0, "")
    code, said = check("0.1")
    assert code == 1
    assert said.startswith(f"floors: not the lowest versions: pluggy {installed} instead of 0.1; ")
