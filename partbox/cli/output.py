"""What commands print: tables for people, JSON for programs, errors in one line."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from json import dumps
from typing import Any, Literal

import orjson
import psycopg
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from partbox.errors import PartboxError
from partbox.rules.duration import UNITS
from partbox.rules.secrets import masked

FOR_PIPES = 200

# Classes of SQLSTATE: connection, authorization, no such database, resources, shutdown.
UNREACHABLE = ("08", "28", "3D", "53", "57")


def console() -> Console:
    """The standard output; lines for a pipe are not broken at 80 columns."""
    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else FOR_PIPES
    return Console(highlight=False, width=wide)


def table(
    columns: Sequence[str], rows: Iterable[Iterable[str]], numbers: Sequence[str] = (), whole: Sequence[str] = ()
) -> Table:
    """A table without frame. Cells are plain text, never markup, made printable; those of `whole` and `numbers` are
    never broken."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column in (*numbers, *whole))
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def print_json(value: Any) -> None:
    """Dataclasses, UUIDs and plain data, indented; what would act on a terminal is escaped, as JSON escapes it."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    typer.echo(_escaped(text, lambda character: dumps(character)[1:-1]))


def printable(text: str) -> str:
    """The text with all that is no visible character but a line's end escaped: what events and errors say must not move
    a terminal's cursor, colour it, or turn the direction of writing."""
    return _escaped(text, lambda character: character.encode("unicode_escape", "surrogatepass").decode())


def in_short(text: str, most: int = 120) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def moment(when: datetime | None) -> str:
    """A time in UTC, to the second; "-" for None."""
    return "-" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def counted(number: int, what: str) -> str:
    """ "1 record", "1,234 records"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def age(length: float | None) -> str:
    """Seconds as people say them: "0.4 s", "12 s", "3 m", "5 h", "2 d"; "-" for None."""
    if length is None:
        return "-"
    unit = next((unit for unit in ("d", "h", "m") if length >= 2 * UNITS[unit]), "s")
    amount = length / UNITS[unit]
    return f"{amount:.1f} {unit}" if unit == "s" and amount < 10 else f"{amount:.0f} {unit}"


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else escape(each) for each in text)


def in_one_line(error: PartboxError | psycopg.Error) -> str:
    """What went wrong and what to do about it, without secrets."""
    said = masked(" ".join(str(error).split("\n")[0].split()))
    match error:
        case PartboxError():
            return masked(" ".join(str(error).split()))
        case psycopg.errors.InsufficientPrivilege():
            return f"{said}: connect as a role that may do this, or grant it"
        case psycopg.errors.QueryCanceled():
            return f"the database gave up: {said}: try again when it is less busy, or ask for less"
        case psycopg.OperationalError() if (error.sqlstate or "08")[:2] in UNREACHABLE:
            return f"cannot use the database: {said}: check --dsn or PARTBOX_DSN, and that the server runs"
        case psycopg.ProgrammingError() if error.sqlstate is None:
            return f"the DSN cannot be read: {said}: write postgresql://user@host/database, or embedded:"
        case _:
            return f"the database refused: {said or type(error).__name__} (SQLSTATE {error.sqlstate})"
