"""Hints about an unknown name: the known one that was perhaps meant, or all of them."""

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from partbox.text.wording import several

MOST = 8  # names that are listed


def hint(name: str, known: Iterable[str], otherwise: str | None = None, likeness: float = 0.6) -> str:
    """The known name that a wrong one resembles, else the text `otherwise`, or all names; to follow a colon."""
    names = [*known]
    if near := get_close_matches(name, names, n=1, cutoff=likeness):
        return f"did you mean {near[0]!r}?"
    if otherwise is not None:
        return otherwise
    return f"there are {', '.join(names)}" if names else "leave it out"


def no_subscription(name: str, schema: str, others: Sequence[str]) -> str:
    """The error of a subscription that does not exist, with the `others` of the schema."""
    said = f"subscription {name!r} does not exist in schema {schema!r}"
    create = f"`partbox subscription create {shlex.quote(name)}`"
    if not others:
        return f"{said}, which has none: {create} makes it"
    there = f"there {'is' if len(others) == 1 else 'are'} {listed(others)}"
    return f"{said}: {there}; {hint(name, others, f'check the name, or {create} makes it')}"


def listed(names: Sequence[str]) -> str:
    """ "'a', 'b' and 3 more"."""
    return several([*map(repr, names)], MOST)
