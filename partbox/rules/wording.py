"""Numbers, lengths of time and long texts as people read them."""

from signal import Signals

from partbox.rules.duration import UNITS


def in_short(text: str, most: int = 120) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def counted(number: int, what: str) -> str:
    """ "1 record", "1,234 records", "2 processes"."""
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


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
