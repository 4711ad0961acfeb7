"""The page of the documentation that lists every command; `partbox --markdown` prints it."""

import re
from typing import Any

import typer
from typer.cli import get_docs_for_click

HEAD = """\
# The command line

This page is generated: `partbox --markdown > docs/cli.md`.

Exit codes: 0 = done, 1 = it could not be done, and one line says why, 2 = wrong usage. Every command answers `--help`.
Every [setting](settings.md) is an option of each command that uses settings, such as `--lease 10s` or `--pooler`.
"""

# Said once for all of them.
_REPEATED = re.compile(r"^(\* `(?:-h, )?--help`: .*|Every setting is an option too.*)\n", re.MULTILINE)
_EMPTY = re.compile(r"^\*\*Options\*\*:\n++(?=\*\*|#|\Z)", re.MULTILINE)
_BLANK = re.compile(r"\n{3,}")
_EXAMPLE = re.compile(r"^Example: (.*)$", re.MULTILINE)


def page(command: Any) -> str:
    """The whole page, in Markdown."""
    context = typer.Context(command, info_name="partbox")
    text = get_docs_for_click(obj=command, ctx=context, name="partbox")
    _, _, commands = text.partition("\n## ")
    said = _EMPTY.sub("", _REPEATED.sub("", f"\n## {commands}"))
    return HEAD + _BLANK.sub("\n\n", _EXAMPLE.sub(r"Example: `\1`", said)).rstrip() + "\n"
