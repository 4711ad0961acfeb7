"""Output of commands: tables for people, JSON for programs, one line for an error."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import orjson
import psycopg
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from partbox.db.connect import NoDsnError, PoolerRefusedError
from partbox.errors import PartboxError
from partbox.text.printing import escape_json

# Commands import the text functions from this module.
from partbox.text.printing import escape_unprintable as escape_unprintable
from partbox.text.secrets import mask_secrets
from partbox.text.wording import format_age as format_age
from partbox.text.wording import format_count as format_count
from partbox.text.wording import format_time as format_time
from partbox.text.wording import shorten_text as shorten_text

FOR_PIPES = 200  # columns

# Classes of SQLSTATE: connection, authorization, unknown database, lack of resources, shutdown.
UNREACHABLE = ("08", "28", "3D", "53", "57")
# Messages of libpq, for a session, and of a server, for a statement, that cannot write; and of a server that starts or
# stops.
READ_ONLY, NOT_READY = ("session is read-only", "server is in hot standby mode"), ("the database system is ",)


def make_console() -> Console:
    """Return a rich console for standard output, which does not wrap lines at 80 columns in a pipe."""
    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else FOR_PIPES
    return Console(highlight=False, emoji=False, width=wide)


def build_table(
    columns: Sequence[str],
    rows: Iterable[Iterable[str]],
    numbers: Sequence[str] = (),
    whole: Sequence[str] = (),
    *,
    lines: bool = False,
) -> Table:
    """Build a table without a frame for the terminal. Cells are plain text, not markup."""
    # Unprintable characters are escaped. A cell is one line unless `lines` is set. Cells of the columns `whole` and
    # `numbers` are never wrapped.
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column in (*numbers, *whole))
    for row in rows:
        # A line break in a name would begin text that looks like another row.
        made.add_row(*(Text(escape_unprintable(cell) if lines else escape_line(cell)) for cell in row))
    return made


class ListColumn(NamedTuple):
    """A column of a printed table: its heading, the function that makes its cells, and their kind.

    Cells of the kinds "whole" and "number" are never wrapped."""

    name: str
    cell: Callable[[Any], str]
    kind: Literal["text", "number", "whole"] = "text"


def build_list_table(found: Sequence[Any], columns: Sequence[ListColumn]) -> Table:
    numbers, whole = ([each.name for each in columns if each.kind == kind] for kind in ("number", "whole"))
    rows = ([column.cell(each) for column in columns] for each in found)
    return build_table([each.name for each in columns], rows, numbers, whole)


def print_list(
    found: Sequence[Any], columns: Sequence[ListColumn], json: bool, *, nothing: str, more: str = ""
) -> None:
    """Print items as JSON or as a table. If there are none, print the line `nothing`."""
    # The line `more` follows the items.
    if json:
        print_json(found)
    elif not found:
        typer.echo(nothing)
    else:
        console, rows = make_console(), [[escape_line(column.cell(each)) for column in columns] for each in found]
        if console.is_terminal or not _print_lines(columns, rows, console.width):
            console.print(build_list_table(found, columns))
        if more:
            typer.echo(f"\n{more}")


def _print_lines(columns: Sequence[ListColumn], rows: list[list[str]], width: int) -> bool:
    """Print a table as lines, if they fit into the width. Return False if they do not."""
    # The lines are those that rich prints, which takes fifteen times as long: for lists of thousands of rows in a pipe.
    lines = [[column.name for column in columns], *rows]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        return False
    for line in lines:
        padding = [" " * (most - cell_len(cell)) for most, cell in zip(widths, line, strict=True)]
        cells = zip(columns, line, padding, strict=True)
        typer.echo("  ".join(pad + cell if each.kind == "number" else cell + pad for each, cell, pad in cells))
    return True


def format_error(each: Any) -> str:
    return ": ".join(part for part in (each.error_type, each.error) if part)


def print_answer(json: bool, value: Any, text: str) -> None:
    if json:
        print_json(value)
    else:
        typer.echo(text)


def escape_line(text: str) -> str:
    """Join a text to one line with its unprintable characters escaped."""
    # The text may be user input.
    return escape_unprintable(text).replace("\n", "\\n")


def print_json(value: Any) -> None:
    """Print dataclasses, UUIDs and plain data as indented JSON."""
    # Characters that act on a terminal are escaped.
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    # typer would write UTF-8 even if the output is ASCII.
    sys.stdout.write(f"{escape_json(text)}\n")


def format_error_line(error: PartboxError | psycopg.Error) -> str:  # noqa: PLR0911  a line for each kind
    """Describe an error and its remedy in one line for the terminal, with secrets masked."""
    said = mask_secrets(" ".join(str(error).split("\n")[0].split()))
    match error:
        case PartboxError():
            return mask_secrets(" ".join(str(error).split()))
        case psycopg.errors.InsufficientPrivilege():
            return f"{said}: connect as a role that may do this, or grant the privilege"
        case psycopg.errors.QueryCanceled():
            return f"the database gave up: {said}: try again when it is less busy, or ask for less"
        case psycopg.errors.DiskFull():
            return f"a disk of the PostgreSQL server is full: {said}: make room there, and repeat the command"
        case NoDsnError() | PoolerRefusedError():
            return f"cannot use the database: {said}"
        case psycopg.errors.ReadOnlySqlTransaction():
            return _format_read_only(said)
        case psycopg.OperationalError() if line := _find_line(error, READ_ONLY):
            return _format_read_only(line)
        case psycopg.OperationalError() if line := _find_line(error, NOT_READY):
            passes = "repeat the command in a moment; workers retry by themselves"
            return f"cannot use the database yet: {line}: {passes}"
        case psycopg.OperationalError() if (error.sqlstate or "08")[:2] in UNREACHABLE:
            return f"cannot use the database: {said}: check --dsn or PARTBOX_DSN, and that the server runs"
        case psycopg.ProgrammingError() if error.sqlstate is None:
            return f"the DSN cannot be used: {said}: write postgresql://user@host/database, or embedded:"
        case _:
            refused = said or type(error).__name__
            return f"the database refused: {refused} (SQLSTATE {error.sqlstate}): `partbox doctor` looks for the cause"


def _find_line(error: psycopg.Error, words: Sequence[str]) -> str:
    # The text is empty if no line contains any of the words.
    # An error of a DSN with several hosts has a line for each host.
    found = (line for line in str(error).splitlines() if any(each in line for each in words))
    return mask_secrets(" ".join(next(found, "").split()))


def _format_read_only(said: str) -> str:
    return (
        f"cannot use the database: {said}: the server takes no writes now: it is a standby, as in a failover, or "
        "default_transaction_read_only is on: repeat the command when that is over (workers go on by themselves), or "
        "give the DSN of the primary"
    )
