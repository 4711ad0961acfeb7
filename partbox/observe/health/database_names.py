"""Names of databases for people: in logs, metrics, health checks and on the page."""

from collections import Counter
from collections.abc import Sequence

from partbox.errors import SettingsError
from partbox.text.dsn import parts
from partbox.text.printing import printable_line

LONGEST = 60  # characters of a database's name


def database_names(dsns: Sequence[str]) -> list[str]:
    """The names of these databases: the database's name, with host and port only where names are equal."""
    given = [_parts(dsn) for dsn in dsns]
    short = [_name(each) for each in given]
    names = [
        f"{_place(each)}/{name}" if short.count(name) > 1 else name for each, name in zip(given, short, strict=True)
    ]
    seen: Counter[str] = Counter()
    for at, name in enumerate(names):
        seen[name] += 1
        names[at] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names


def _name(given: dict[str, str]) -> str:
    name = given.get("dbname") or given.get("service") or given.get("user") or "default"
    return printable_line(name, LONGEST)


def _place(given: dict[str, str]) -> str:
    return printable_line(f"{given.get('host') or 'localhost'}:{given.get('port') or '5432'}", LONGEST)


def _parts(dsn: str) -> dict[str, str]:
    try:
        return parts(dsn)
    except SettingsError:  # connecting will name the error
        return {}
