"""The documentation as a site: no dead link, a place for every page, and what is generated is as it should be.

scripts/docs builds it, which takes too long for every run; what can go wrong is looked for here.
"""

import re
import sys
from pathlib import Path, PurePosixPath

import partbox

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from site_pages import BESIDE, LINK, config, llms, places, staged  # noqa: E402 (the scripts are no package)

FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
PAGES = [*ROOT.glob("docs/*.md"), *(ROOT / name for name in BESIDE), ROOT / "sql" / "README.md"]


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Those of the headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings)
    return {re.sub(r"[^\w\- ]", "", each).strip().replace(" ", "-") for each in plain}


def dead(path: Path) -> list[str]:
    found = []
    for _, file, anchor in LINK.findall(prose(path)):
        target = (path.parent / file).resolve()
        if not target.exists() or (anchor and anchor[1:] not in anchors(target)):
            found.append(f"{path.relative_to(ROOT)}: {file}{anchor}")
    here = re.findall(r"\]\(#([^)]+)\)", prose(path))
    return found + [f"{path.relative_to(ROOT)}: #{each}" for each in here if each not in anchors(path)]


def test_no_link_within_the_repository_is_dead():
    assert [each for path in PAGES for each in dead(path)] == []


def test_every_link_of_a_page_of_the_site_leads_to_one_or_to_the_repository():
    files = staged(ROOT)
    for name, content in files.items():
        if name.endswith(".md"):
            text = FENCED.sub("", content.decode())
            linked = [str(PurePosixPath(name).parent / file) for _, file, _ in LINK.findall(text)]
            assert [each for each in linked if each not in files] == [], name


def test_every_page_is_in_the_navigation_once():
    listed = [page for _, _, page in places(config(ROOT))]
    pages = [path.name for path in ROOT.glob("docs/*.md")] + [*BESIDE.values()]
    assert sorted(listed) == sorted(pages), "docs/zensical.toml"


def test_the_files_for_language_models_list_each_page_with_its_subject_and_hold_the_whole_text():
    pages = llms(ROOT)
    lines = [line for line in pages["llms.txt"].splitlines() if line.startswith("- ")]
    assert len(lines) == len([*places(config(ROOT))]) == len(config(ROOT)["extra"]["about"])
    assert all(re.fullmatch(r"- \[.+\]\(https://[^ ]+\): \S.{15,}", line) for line in lines), lines
    whole = pages["llms-full.txt"]
    assert all(f"# {title}\n" in whole for title in ("Publishing", "Settings", "Guarantees", "Changelog"))


def test_the_page_on_python_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: partbox\.(\w+)$", page, re.MULTILINE)
    assert sorted([*shown, "__version__"]) == sorted(partbox.__all__)
