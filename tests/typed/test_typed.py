"""The package is typed: a user's program is checked by mypy --strict against what is installed."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

PROGRAM = Path(__file__).parent / "program.py"
CACHE = Path(__file__).parents[2] / ".mypy_cache" / "user"


def test_the_package_says_that_it_is_typed() -> None:
    assert files("partbox").joinpath("py.typed").is_file()


def test_a_program_that_uses_every_public_call_is_well_typed(tmp_path: Path) -> None:
    """From a folder of its own, where nothing but the installation says where partbox is."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}", str(PROGRAM)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["Success: no issues found in 1 source file"], ended.stderr
