"""The shape of the house as no linter sees it: sizes, one name for one thing, no import in a circle.

Each rule has a list of today's exceptions, which is exact: what is in it and needs it no longer fails the test too, so
that the lists can only shrink.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from source_trees import parsed

ROOT = Path(__file__).parents[1]
LAB = "lab/partbox_lab"
MOST_LINES = 360  # of code in a file: comments and docstrings are not what makes one long
MOST_BODY = 40  # lines of code in the body of a function
MOST_ATTRIBUTES = 20  # of a class
CONVENTIONAL = {"Meta", "Command", "Migration"}  # Django finds them by these names
ROWS = {"row", "_row", "record", "_record", "fetchone", "fetchall"}
ROWS_ARE_READ = ("partbox/events/record.py", "partbox/db/", "partbox/testing/statements.py", f"{LAB}/peers/")
MAY_BE_OF_A_UUID = re.compile(r"""assert b?["'](?=[a-f]*\d)[0-9a-f]{3,11}["'] not in""")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
NOT_A_REASON = ("# type:", "# noqa", "# fmt:", "# pragma:")

LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = {
    "partbox/worker/runners/lane_runner.py::LaneRunner.run",
}
MANY_ATTRIBUTES: set[str] = {
    "partbox/settings/__init__.py::Settings",
}
DEFINED_TWICE: set[str] = {
    "Dead",
}
NUMBERED_ROWS: set[str] = set()
CYCLES: set[frozenset[str]] = set()

Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = dict[str, set[str]]


def files(*folders: str) -> Iterator[tuple[str, Path]]:
    """(path from the root, file) of each Python file below these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path


@cache
def trees() -> dict[str, ast.Module]:
    """The code of partbox and of its lab, by path."""
    names = {path: name for name, path in files("partbox", LAB)}
    return {names[path]: tree for path, tree in parsed(names).items()}


@cache
def comments(name: str) -> dict[int, str]:
    """The comments of a file, by line."""
    text = (ROOT / name).read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def has_reason(name: str, node: ast.ClassDef) -> bool:
    """True if a comment stands on the line of the definition, or on the one above it or above its decorators."""
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    found = (comments(name).get(line) for line in (node.lineno, node.lineno - 1, first - 1))
    return any(each is not None and not each.startswith(NOT_A_REASON) for each in found)


def named(kinds: tuple[type, ...]) -> Iterator[tuple[str, str, ast.AST]]:
    """(path, qualified name, node) of each definition of these kinds in partbox."""

    def within(node: ast.AST, name: str, outer: str) -> Iterator[tuple[str, str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                here = f"{outer}.{child.name}" if outer else child.name
                if isinstance(child, kinds):
                    yield name, here, child
                yield from within(child, name, here)
            else:
                yield from within(child, name, outer)

    for name, tree in trees().items():
        yield from within(tree, name, "")


def attributes(node: ast.ClassDef) -> set[str]:
    """Names that are assigned on `self`, and annotated in the class."""
    own = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self":
            own.add(each.attr)
    return own


def is_exactly(found: Iterable[object], listed: Iterable[object], remedy: str) -> None:
    """Fail for what is not in the list, and for what is and need not be."""
    new, gone = set(found) - set(listed), set(listed) - set(found)
    assert not new, f"{remedy}: {sorted(map(str, new))}"
    assert not gone, f"take these from the list of exceptions, which they need no longer: {sorted(map(str, gone))}"


@cache
def code_lines(path: Path) -> frozenset[int]:
    """Return the numbers of the lines of a file that hold code, which comments, docstrings and empty lines do not."""
    text = path.read_text(encoding="utf-8")
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(found)


def test_no_file_has_more_than_360_lines_of_code() -> None:
    lengths = {name: len(code_lines(path)) for name, path in files("partbox", "lab", "tests", "scripts")}
    is_exactly({name for name, length in lengths.items() if length > MOST_LINES}, LONG_FILES, "split these files")


def test_no_function_has_more_than_40_lines_of_code() -> None:
    found = {
        f"{name}::{inner}"
        for name, inner, node in named((ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(node, Function)
        and sum(node.body[0].lineno <= line <= (node.end_lineno or 0) for line in code_lines(ROOT / name)) > MOST_BODY
    }
    is_exactly(found, LONG_FUNCTIONS, "split these functions")


def test_no_class_has_more_than_20_attributes_without_a_reason() -> None:
    found = {
        f"{name}::{inner}"
        for name, inner, node in named((ast.ClassDef,))
        if isinstance(node, ast.ClassDef) and len(attributes(node)) > MOST_ATTRIBUTES and not has_reason(name, node)
    }
    is_exactly(found, MANY_ATTRIBUTES, "split these classes, or say why in a comment at the `class`")


def test_no_class_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for name, inner, _ in named((ast.ClassDef,)):
        places[inner.rpartition(".")[2]].append(name)
    twice = {each for each, names in places.items() if len(names) > 1} - CONVENTIONAL
    is_exactly(twice, DEFINED_TWICE, "rename all but one of these classes")


def test_no_row_is_read_by_index_where_its_columns_have_names() -> None:
    found = {
        f"{name}::{ast.unparse(node)}"
        for name, tree in trees().items()
        if not name.startswith(ROWS_ARE_READ)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and _is_row(node.value) and _has_number(node.slice)
    }
    is_exactly(found, NUMBERED_ROWS, "name these columns")


def _is_row(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)):
            return name in ROWS
    return False


def _has_number(node: ast.expr) -> bool:
    parts = [node.lower, node.upper] if isinstance(node, ast.Slice) else [node]
    return any(isinstance(part, ast.Constant | ast.UnaryOp) and not _is_text(part) for part in parts)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_no_modules_import_each_other_even_for_types_or_within_functions() -> None:
    is_exactly(cycles(imports()), CYCLES, "break these cycles")


def test_a_cycle_of_imports_is_found_whatever_kind_of_import_closes_it() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == {frozenset("abc")}
    typing = "if TYPE_CHECKING:\n    from partbox.outbox import Outbox"
    within = "def f():\n    import partbox.outbox"
    for text in (typing, within, "from partbox import outbox"):
        assert _imported(ast.parse(text), {"partbox", "partbox.outbox"}) == {"partbox.outbox"}


def test_every_test_file_has_a_name_of_its_own() -> None:
    found = [path for _, path in files("tests", "lab/tests") if not (path.parent / "__init__.py").exists()]
    names = [path.name for path in found if path.name != "conftest.py"]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"pytest imports test files by their base names: {sorted(twice)}"


@pytest.mark.parametrize("folder", ["tests", "tests/worker"])
def test_every_folder_of_tests_is_in_the_index(folder: str) -> None:
    index = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^[|-] `([a-z]+)/?`", index, re.MULTILINE)
    assert sorted(listed) == sorted({path.relative_to(ROOT / folder).parts[0] for path in _nested(ROOT / folder)})


def _nested(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if path.parent != folder)


def test_no_test_looks_for_a_text_that_a_random_uuid_may_hold() -> None:
    found = [
        f"{name}:{number}"
        for name, path in files("tests", "lab/tests")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MAY_BE_OF_A_UUID.search(line)
    ]
    assert not found, f"look for a word instead, with letters after f: {found}"


def imports() -> Graph:
    """By each module of partbox the modules that it imports, wherever in its text."""
    modules = {_module(name): tree for name, tree in trees().items()}
    return {module: _imported(tree, set(modules)) - {module} for module, tree in modules.items()}


def _module(name: str) -> str:
    return name.removeprefix("lab/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(tree: ast.Module, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inner = {f"{node.module}.{each.name}" for each in node.names}
            found.update(each if each in modules else str(node.module) for each in inner)
    return found & modules


def cycles(graph: Graph) -> set[frozenset[str]]:
    """The largest sets of modules each of which imports every other one, directly or not."""
    reached = {module: _reached(graph, module) for module in graph}
    together = {frozenset({a, *(b for b in reached[a] if a in reached[b])}) for a in graph}
    return {each for each in together if len(each) > 1}


def _reached(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in graph[waiting.pop()] - found:
            found.add(each)
            waiting.append(each)
    return found
