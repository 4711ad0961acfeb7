"""Numbers, lengths of time, long texts and commands as people read them."""

import shlex
from collections.abc import Sequence
from signal import Signals

from partbox.duration import UNITS


def in_short(text: str, most: int = 120) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def counted(number: int, what: str) -> str:
    """ "1 record", "1,234 records", "2 processes"."""
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def several(names: Sequence[str], most: int = 5) -> str:
    """ "a, b, c, d, e and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def size(count: int) -> str:
    """Bytes as people say them: "812 B", "64 kB", "3.4 GB"; a kB is 1,024 bytes, as PostgreSQL has it."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 10 else f"{amount:.0f} {unit}"


def ending(code: int | None) -> str:
    """The end of a process in words: "was killed by SIGKILL", "ended with exit code 1"."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def age(length: float | None) -> str:
    """Seconds as people say them: "0.4 s", "12 s", "3 m", "5 h", "2 d"; "-" for None."""
    if length is None:
        return "-"
    unit = next((unit for unit in ("d", "h", "m") if length >= 2 * UNITS[unit]), "s")
    amount = length / UNITS[unit]
    return f"{amount:.1f} {unit}" if unit == "s" and amount < 10 else f"{amount:.0f} {unit}"


def brief(length: float | None) -> str:
    """Seconds like `age`, but in milliseconds below one second: "3.2 ms", "45 ms"."""
    if length is None or length >= 1:
        return age(length)
    return f"{1000 * length:.{1 if length < 0.01 else 0}f} ms"


def command(
    words: str, schema: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()
) -> str:
    """A command of ours in backticks, to be copied into a shell."""
    parts = ["partbox", *words.split(), *options]
    if subscription not in (None, "default"):
        parts += ["--subscription", str(subscription)]
    if schema != "partbox":
        parts += ["--schema", schema]
    if any(each.startswith("-") for each in arguments):
        parts.append("--")
    return f"`{shlex.join([*parts, *arguments])}`"
