"""Finds sentences of docstrings and comments that strangers stumble over; see scripts/plain.

Blind readings met these ten patterns in our docstrings, and hardly ever in those of psycopg or trio. Each pattern hides
the subject or the object of its sentence.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOMS = ("partbox", "lab/partbox_lab")
MOST = 0.04  # of the sentences of a folder
PATTERNS = {
    "what as a noun": r"\b[Ww]hat\b(?! kind)",
    "these or those as a noun": r"\b[Tt](?:hese|hose)\b(?! [a-z]+s\b)",
    "so many": r"\b[Ss]o (?:many|much)\b",
    "who, whoever or whatever as a noun": r"\b(?:[Ww]ho(?:so)?ever|[Ww]hatever)\b|(?:^|[.:;] )Who\b",
    "is to": r"\b(?:is|are|was|were) to (?!(?:the|a|an)\b)[a-z]+",
    "is told": r"\b(?:is|are|was|were|be|been) (?:told|said)\b|\b(?:told|tells?) of\b",
    "let there be": r"\b[Ll]et there\b|\b[Tt]here is to\b",
    "a sentence that begins with Of": r"(?:^|[.;:] )Of\b",
    "one that as a noun": r"(?<!the )\b[Oo]ne (?:that|of which|whose|which|who)\b|\bother's\b",
}
FIRST_PATTERNS = {"a pronoun without its noun": r"^(?:It|Its|They|Their|Them|He|His)\b"}
DIRECTIVES = re.compile(r"\s*#? ?(?:noqa|type: ?ignore|fmt:|pragma:).*")


class Sentence(NamedTuple):
    """A sentence of the docstring or comment that begins on `line`; `is_first` if no other sentence is before it."""

    line: int
    text: str
    is_first: bool

    def patterns(self) -> list[str]:
        """Return the names of the patterns that the sentence has."""
        patterns = PATTERNS | FIRST_PATTERNS if self.is_first else PATTERNS
        return [name for name, pattern in patterns.items() if re.search(pattern, self.text)]


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of all docstrings and comments of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield from split(node.body[0].lineno, docstring)
    comment: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            first = first if comment else token.start[0]
            comment.append(DIRECTIVES.sub("", token.string.lstrip("#! ")))
        elif comment and token.type not in {tokenize.NL, tokenize.NEWLINE}:
            yield from split(first, " ".join(comment))
            comment = []


def split(line: int, text: str) -> list[Sentence]:
    """Return the sentences of a text that begins on a line, with an X for each quotation. Examples are left out."""
    prose = re.sub(r"```.*?```|^(?: {4}.*\n?)+", "", text, flags=re.DOTALL | re.MULTILINE)
    flat = re.sub(r"\s+", " ", re.sub(r"`[^`]*`|\"[^\"]*\"", "X", prose))
    parts = re.split(r"(?<=[.!?]) (?=[A-Z])", flat)
    return [Sentence(line, each.strip(), number == 0) for number, each in enumerate(parts) if each.strip(" .")]


def main() -> int:
    """Print what is found; return 1 if a folder has more than it may."""
    parser = argparse.ArgumentParser(prog="scripts/plain", description=__doc__)
    parser.add_argument("folders", nargs="*", default=ROOMS)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the share of every folder")
    given = parser.parse_args()
    found: dict[Path, list[tuple[Path, Sentence]]] = defaultdict(list)
    for folder in given.folders:
        for path in sorted(Path(folder).rglob("*.py")):
            found[path.parent] += [(path, each) for each in sentences(path.read_text(encoding="utf-8"))]
    too_many = False
    for room, all_sentences in sorted(found.items()):
        foreign = [(path, each) for path, each in all_sentences if each.patterns()]
        share = len(foreign) / len(all_sentences) if all_sentences else 0.0
        if given.verbose:
            print(f"{share:6.1%} of {len(all_sentences):5,}  {room}")
        elif share > MOST:
            too_many = True
            print(f"plain: {room}: {share:.1%} of {len(all_sentences):,} sentences, and at most {MOST:.0%} may:")
            for path, each in foreign:
                print(f"  {path}:{each.line}: {', '.join(each.patterns())}: {each.text[:100]}")
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main())
