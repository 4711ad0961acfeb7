"""The pages of the site, made from those of the repository: links that leave docs/ lead to the repository instead.

docs/zensical.toml says which pages there are, in which order, and what each is about.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/SECURITY.md": "security.md",
    ".github/CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
"""Pages that are not in docs/, and their names on the site."""

LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def staged(root: Path) -> dict[str, bytes]:
    """Every file that the site is built of, by its path there."""
    inside = (path for path in (root / "docs").rglob("*") if path.is_file() and path.suffix != ".toml")
    files = {str(path.relative_to(root / "docs")): path.read_bytes() for path in inside if ".cache" not in path.parts}
    pages = {name: f"docs/{name}" for name in files if name.endswith(".md")} | {to: at for at, to in BESIDE.items()}
    return files | {name: _page(root, source).encode() for name, source in pages.items()}


def llms(root: Path) -> dict[str, str]:
    """llms.txt, a list of the pages with what each is about, and llms-full.txt, all of them in one."""
    project = config(root)
    titles = {page: title for _, title, page in places(project)}
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for section, title, page in places(project):
        if (heading := f"## {section}") not in lines:
            lines += ["", heading, ""]
        address = project["site_url"] + ("" if page == "index.md" else f"{page.removesuffix('.md')}/")
        lines.append(f"- [{title}]({address}): {project['extra']['about'][page]}")
    whole = "\n\n".join(_page(root, _source(page)).strip() for page in titles)
    return {"llms.txt": "\n".join(lines) + "\n", "llms-full.txt": whole + "\n"}


def config(root: Path) -> dict:
    return tomllib.loads((root / "docs" / "zensical.toml").read_text(encoding="utf-8"))["project"]


def places(project: dict) -> Iterator[tuple[str, str, str]]:
    """Section, title and page of every place of the navigation."""
    for each in project["nav"]:
        ((section, inside),) = each.items()
        yield from ((section, title, page) for title, page in _leaves(inside))


def _leaves(inside: list) -> Iterator[tuple[str, str]]:
    for each in inside:
        ((title, below),) = each.items()
        if isinstance(below, str):
            yield title, below
        else:
            yield from _leaves(below)


def _source(page: str) -> str:
    return next((at for at, to in BESIDE.items() if to == page), f"docs/{page}")


def _page(root: Path, source: str) -> str:
    """The text of a page, its links as they are on the site."""
    repository = config(root)["repo_url"]

    def link(match: re.Match[str]) -> str:
        at = _joined(PurePosixPath(source).parent, match[2])
        inside = BESIDE.get(at) or (at.removeprefix("docs/") if at.startswith("docs/") else None)
        return f"{match[1]}{inside or f'{repository}/blob/main/{at}'}{match[3] or ''})"

    return LINK.sub(link, (root / source).read_text(encoding="utf-8"))


def _joined(folder: PurePosixPath, link: str) -> str:
    parts: list[str] = []
    for part in (folder / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
