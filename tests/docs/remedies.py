"""The remedies that the product proposes, as its sources hold them: commands, SQL statements, installations."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ("demo", "testing")
"""What proposes nothing to an operator: the demo, and the test double, which speaks to tests."""

VERBS = (
    "partbox |select |alter |update |delete |drop |grant |revoke |vacuum |create |commit |rollback "
    "|kill |py-spy |dmesg |timedatectl |rabbitmqctl "
)
PROPOSED = re.compile(rf"`(?:{VERBS})[^`]*`|pip install [^\s:;,)]+|set `[a-z_]+(?: = [^`]*)?`|PARTBOX_[A-Z_]+=\w+")
MADE = re.compile(r"`\{[^`]*\}[^`]*`")
"""Where a text fills in the beginning of a statement: so do doctor and the proof of a session."""
ON_THE_PAGE = re.compile(r'"(partbox [^"]*)"[,)\]]')
"""Texts of the page that are a command and nothing else."""
HINT = re.compile(r"hint = (?:format\()?('(?:[^']|'')*')", re.DOTALL)


def found() -> dict[str, set[str]]:
    """Each remedy with the files that propose it; what a text fills in stands as `{}`."""
    remedies: dict[str, set[str]] = {}
    for path in sorted((ROOT / "partbox").rglob("*.py")):
        where = path.relative_to(ROOT)
        if where.parts[1] not in ELSEWHERE:
            for text in proposals(path.read_text("utf-8"), made=where.parts[1] in ("doctor", "db")):
                remedies.setdefault(text, set()).add(str(where))
    for path in sorted((ROOT / "partbox" / "dashboard" / "static").glob("*.js")):
        for text in ON_THE_PAGE.findall(path.read_text("utf-8")):
            remedies.setdefault(f"`{text}`", set()).add(str(path.relative_to(ROOT)))
    for path in sorted((ROOT / "sql" / "functions").glob("*.sql")):
        for hint in HINT.findall(path.read_text("utf-8")):
            remedies.setdefault("hint: " + hint.strip("'").replace("''", "'"), set()).add(str(path.relative_to(ROOT)))
    return remedies


def proposals(source: str, *, made: bool) -> list[str]:
    """Return the remedies in the texts of a module; with `made` also those of which the beginning is filled in."""
    return [*_proposals(ast.parse(source), made)]


def _proposals(tree: ast.AST, made: bool) -> Iterator[str]:
    """The remedies in the texts of a module, but for its docstrings, and the calls that make a command of partbox."""
    skipped = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(each) for each in ast.walk(node) if isinstance(each, ast.Constant))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("format_command", "case.format_command"):
            words = next((each.value for each in node.args if isinstance(each, ast.Constant)), None)
            if isinstance(words, str) and words:
                options = (ast.unparse(each.value) for each in node.keywords if each.arg == "options")
                yield f"`partbox {words}`" + "".join(f" with {each}" for each in options)
        elif isinstance(node, ast.JoinedStr):
            text = "".join(map(_literal, node.values))
            yield from PROPOSED.findall(re.sub(r"\{[^}]*\}", "{}", text))
            yield from MADE.findall(text) if made else ()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield from PROPOSED.findall(node.value)


def _literal(part: ast.expr) -> str:
    return (
        part.value
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        else f"{{{ast.unparse(part)[1:-1]}}}"
    )
