"""Names of databases for people: in logs, metrics, health checks and on the page."""

from collections import Counter
from collections.abc import Sequence

from partbox.errors import SettingsError
from partbox.text.dsn import parts
from partbox.text.printing import printable_line

LONGEST = 60  # characters of a database's name


def database_names(dsns: Sequence[str]) -> list[str]:
    """The names of these databases: the database's name, with host and port only where names are equal."""
    short, long = [_name(dsn) for dsn in dsns], [_place(dsn) for dsn in dsns]
    names = [place if short.count(name) > 1 else name for name, place in zip(short, long, strict=True)]
    seen: Counter[str] = Counter()
    for at, name in enumerate(names):
        seen[name] += 1
        names[at] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names


def _name(dsn: str) -> str:
    given = _parts(dsn)
    name = given.get("dbname") or given.get("service") or given.get("user") or "default"
    return printable_line(name, LONGEST)


def _place(dsn: str) -> str:
    given = _parts(dsn)
    place = f"{given.get('host') or 'localhost'}:{given.get('port') or '5432'}"
    return f"{printable_line(place, LONGEST)}/{_name(dsn)}"


def _parts(dsn: str) -> dict[str, str]:
    try:
        return parts(dsn)
    except SettingsError:  # connecting will name the error
        return {}
