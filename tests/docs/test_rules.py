"""Every rule in the table of rules names places that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("rules.md")
# `path` `name`, `path` module docstring, or a page alone.
PLACE = re.compile(r"`((?:partbox|sql|docs)/[\w./-]+)`(?: `([\w.]+)`)?")


def names_in(path: Path) -> set[str]:
    """Return the names that a source file defines: `Class`, `Class.method`, functions and constants."""
    names: set[str] = set()

    def collect(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                names.add(prefix + child.name)
                collect(child, f"{prefix}{child.name}.")
            elif isinstance(child, (ast.Assign, ast.AnnAssign)):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                names.update(prefix + each.id for each in targets if isinstance(each, ast.Name))
            else:
                collect(child, prefix)

    collect(ast.parse(path.read_text("utf-8")), "")
    return names


def exists(path: str, name: str | None) -> bool:
    file = ROOT / path
    if not file.is_file():
        return False
    if name is None:
        return True
    if file.suffix == ".py":
        return name in names_in(file)
    return re.search(rf"\b{name}\b", file.read_text("utf-8")) is not None


def test_every_rule_names_a_place_that_exists() -> None:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    rules = [line for line in lines if not re.fullmatch(r"\| \*\*.+\*\* \| \|", line)][1:]
    assert len(rules) > 200
    assert [line for line in rules if not PLACE.search(line)] == []
    places = {place.groups() for line in rules for place in PLACE.finditer(line)}
    assert sorted(f"{path} {name}" for path, name in places if not exists(path, name)) == []
