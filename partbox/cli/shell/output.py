"""Output of commands: tables for people, JSON for programs, errors in one line."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import orjson
import psycopg
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from partbox.db.connect import NoDsn, PoolerRefused
from partbox.errors import PartboxError
from partbox.text.printing import printable as printable  # commands have it from here
from partbox.text.printing import printable_json
from partbox.text.secrets import masked
from partbox.text.wording import age as age
from partbox.text.wording import counted as counted
from partbox.text.wording import in_short as in_short
from partbox.text.wording import moment as moment

FOR_PIPES = 200

# Classes of SQLSTATE: connection, authorization, no such database, resources, shutdown.
UNREACHABLE = ("08", "28", "3D", "53", "57")
# The words of libpq where a session, and of a server where a statement, may not write; and of one that starts or stops.
READ_ONLY, NOT_READY = ("session is read-only", "server is in hot standby mode"), ("the database system is ",)


def console() -> Console:
    """The standard output; lines for a pipe are not broken at 80 columns."""
    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else FOR_PIPES
    return Console(highlight=False, emoji=False, width=wide)


def table(
    columns: Sequence[str],
    rows: Iterable[Iterable[str]],
    numbers: Sequence[str] = (),
    whole: Sequence[str] = (),
    *,
    lines: bool = False,
) -> Table:
    """A table without frame. Cells are plain text, never markup, made printable, each one line but with `lines`; those
    of `whole` and `numbers` are never broken."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column in (*numbers, *whole))
    for row in rows:
        # A line's end in a name would begin what looks like another row.
        made.add_row(*(Text(printable(cell) if lines else in_line(cell)) for cell in row))
    return made


class ListColumn(NamedTuple):
    """A column of a list: its name, the cell of each, and whether that is never broken, as numbers are not either."""

    name: str
    cell: Callable[[Any], str]
    kind: Literal["text", "number", "whole"] = "text"


def list_table(found: Sequence[Any], columns: Sequence[ListColumn]) -> Table:
    """A table with a row for each."""
    numbers, whole = ([each.name for each in columns if each.kind == kind] for kind in ("number", "whole"))
    rows = ([column.cell(each) for column in columns] for each in found)
    return table([each.name for each in columns], rows, numbers, whole)


def print_list(
    found: Sequence[Any], columns: Sequence[ListColumn], json: bool, *, nothing: str, more: str = ""
) -> None:
    """Print what was found as JSON or as a table, with a last line `more`; without anything, the line `nothing`."""
    if json:
        print_json(found)
    elif not found:
        typer.echo(nothing)
    else:
        console().print(list_table(found, columns))
        if more:
            typer.echo(f"\n{more}")


def error_of(each: Any) -> str:
    """The type and the text of the error of a record, or of an aggregate, as far as they are known."""
    return ": ".join(part for part in (each.error_type, each.error) if part)


def print_answer(json: bool, value: Any, text: str) -> None:
    """Print the value as JSON, or the text in one line."""
    if json:
        print_json(value)
    else:
        typer.echo(text)


def in_line(text: str) -> str:
    """The text in one line, made printable: it may hold what somebody has typed."""
    return printable(text).replace("\n", "\\n")


def print_json(value: Any) -> None:
    """Dataclasses, UUIDs and plain data, indented; what would act on a terminal is escaped, as JSON escapes it."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(f"{printable_json(text)}\n")  # not by typer, which writes UTF-8 where the output is ASCII


def error_line(error: PartboxError | psycopg.Error) -> str:  # noqa: PLR0911  a line for each kind
    """The error and its remedy, without secrets."""
    said = masked(" ".join(str(error).split("\n")[0].split()))
    match error:
        case PartboxError():
            return masked(" ".join(str(error).split()))
        case psycopg.errors.InsufficientPrivilege():
            return f"{said}: connect as a role that may do this, or grant it"
        case psycopg.errors.QueryCanceled():
            return f"the database gave up: {said}: try again when it is less busy, or ask for less"
        case psycopg.errors.DiskFull():
            return f"a disk of the PostgreSQL server is full: {said}: make room there, and repeat the command"
        case NoDsn() | PoolerRefused():
            return f"cannot use the database: {said}"
        case psycopg.errors.ReadOnlySqlTransaction():
            return _read_only_text(said)
        case psycopg.OperationalError() if line := _find_line(error, READ_ONLY):
            return _read_only_text(line)
        case psycopg.OperationalError() if line := _find_line(error, NOT_READY):
            passes = "that passes, so repeat the command; workers do so by themselves"
            return f"cannot use the database yet: {line}: {passes}"
        case psycopg.OperationalError() if (error.sqlstate or "08")[:2] in UNREACHABLE:
            return f"cannot use the database: {said}: check --dsn or PARTBOX_DSN, and that the server runs"
        case psycopg.ProgrammingError() if error.sqlstate is None:
            return f"the DSN cannot be used: {said}: write postgresql://user@host/database, or embedded:"
        case _:
            refused = said or type(error).__name__
            return f"the database refused: {refused} (SQLSTATE {error.sqlstate}): `partbox doctor` looks for the cause"


def _find_line(error: psycopg.Error, words: Sequence[str]) -> str:
    """The line of the error that holds any of these words, masked: with several hosts each has one; "" without any."""
    found = (line for line in str(error).splitlines() if any(each in line for each in words))
    return masked(" ".join(next(found, "").split()))


def _read_only_text(said: str) -> str:
    return (
        f"cannot use the database: {said}: it takes no writes now, as in a failover: a standby, or "
        "default_transaction_read_only is on: repeat the command when that is over (workers go on by themselves), or "
        "name the primary"
    )
