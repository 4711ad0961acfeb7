"""The options behind the ? of a URL: none is ignored, for a misspelt one would be, or fail at every event."""

import re
from collections.abc import Collection
from urllib.parse import parse_qsl, urlsplit

from partbox.errors import SettingsError
from partbox.text.secrets import MASK, masked_url
from partbox.text.suggestions import hint

_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)


def query_of(url: str, known: Collection[str] | None = None) -> dict[str, str]:
    """The options of a URL by name, each given once; SettingsError for one that is not `known` (None: all are)."""
    place, mark, _ = url.partition("#")
    parts, where = urlsplit(place), masked_url(place)
    if mark:
        raise SettingsError(
            f"{where!r} stands before a #, behind which nothing is read: write %23 for one that is meant"
        )
    if "@" in parts.query:
        raise SettingsError(f"{where!r} has an @ behind a ?: write %40 and %3F for those of a password or a value")
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if known is not None and name not in known:
            raise SettingsError(f"{where!r} has the unknown option {shown(name)!r}: {hint(name, sorted(known))}")
        if name in found or not value:
            problem = "twice" if name in found else "without a value"
            raise SettingsError(f"{where!r} has the option {shown(name)!r} {problem}: give it once, with its value")
        found[name] = value
    return found


def shown(name: str) -> str:
    """The name of an option, if it looks like one: what does not may be a part of a password."""
    return name if _NAME.fullmatch(name) else MASK
