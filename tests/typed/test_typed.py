"""The package is typed: users' programs are checked by mypy --strict and pyright against what is installed."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = [FOLDER / "program.py", FOLDER / "program_of_classes.py"]
CACHE = FOLDER.parents[1] / ".mypy_cache" / "user"


def test_the_package_says_that_it_is_typed() -> None:
    assert files("partbox").joinpath("py.typed").is_file()


def test_programs_that_use_every_public_call_are_well_typed(tmp_path: Path) -> None:
    """From a folder of its own, where nothing but the installation says where partbox is."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}", *map(str, PROGRAMS)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["Success: no issues found in 2 source files"], ended.stderr


def test_pyright_finds_the_programs_well_typed_too() -> None:
    """What is wrong on purpose is marked there, and a mark that marks nothing is an error."""
    command = [sys.executable, "-m", "pyright", "--project", str(FOLDER / "pyright.json"), "--outputjson"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(ended.stdout)
    assert told["summary"]["filesAnalyzed"] == 2
    found = [(_line(each), each["message"]) for each in told["generalDiagnostics"]]
    assert [(line, message) for line, message in found if "import-untyped" not in line] == []  # mypy's alone


def _line(diagnostic: dict[str, object]) -> str:
    place: dict[str, dict[str, int]] = diagnostic["range"]  # type: ignore[assignment]
    return Path(str(diagnostic["file"])).read_text(encoding="utf-8").splitlines()[place["start"]["line"]]
