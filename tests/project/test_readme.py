"""README.md as PyPI shows it, and the one address of the repository."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
LINK = re.compile(r"\]\(([^)]+)\)")


def rendered() -> str:
    """What the build puts into the metadata, but for the version, which only the build knows."""
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def links(text: str) -> list[str]:
    return [link for link in LINK.findall(text) if not link.startswith("#")]


def test_every_link_that_pypi_shows_is_absolute_and_leads_to_a_file_of_the_repository():
    shown, written = links(rendered()), links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) == len(written) > 20
    for link, file in zip(shown, written, strict=True):
        if not file.startswith("https://"):
            form = "raw" if file.endswith(".png") else "blob"
            assert re.fullmatch(rf"{REPOSITORY}/{form}/v[^/]*/{re.escape(file)}", link)
            assert (ROOT / file.partition("#")[0]).is_file(), file
        else:
            assert link == file


def test_every_mention_of_the_repository_is_the_same():
    pages = [
        ROOT / "pyproject.toml",
        *ROOT.glob("docs/**/*.toml"),
        *ROOT.glob(".github/**/*.*"),
        *ROOT.glob("docs/*.md"),
    ]
    named = {
        each for page in pages for each in re.findall(r"https://github\.com/[\w.-]*/partbox\b", page.read_text("utf-8"))
    }
    assert named == {REPOSITORY}


def test_every_supported_python_is_a_classifier():
    tags = [tag.rpartition(" ")[2] for tag in PROJECT["classifiers"] if "Python :: 3." in tag]
    assert tags == ["3.11", "3.12", "3.13", "3.14", "3.15"]
    assert PROJECT["requires-python"] == f">={tags[0]}"
