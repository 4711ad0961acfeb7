"""Texts for numbers, lengths of time, names, commands, and hints about wrong names."""

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from signal import Signals
from typing import Protocol
from uuid import UUID

from partbox.duration import UNITS

MOST = 8  # names that are listed


class NodeProcess(Protocol):
    """The host, supervisor and instance id of a worker process, from which `find_node_names` makes display names.

    `supervisor` is the id of its parent process, or None if not reported."""

    @property
    def instance_id(self) -> UUID: ...
    @property
    def node(self) -> str: ...
    @property
    def supervisor(self) -> UUID | None: ...


def shorten_text(text: str, most: int = 120) -> str:
    """Join a text to one line, and cut it to at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def format_count(number: int, what: str) -> str:
    """Format a number with its noun in the singular or plural, such as "1 record" or "2 processes"."""
    # Large numbers have commas: "1,234 records".
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def format_names(names: Sequence[str], most: int = 5) -> str:
    """List the first names as text and count the others: "a, b, c, d, e and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def format_size(count: int) -> str:
    """Format a number of bytes for display: "812 B", "64 kB", "3.4 GB". A kB is 1,024 bytes."""
    # PostgreSQL counts so as well.
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 10 else f"{amount:.0f} {unit}"


def describe_exit(code: int | None) -> str:
    """Describe how a process ended by its exit code: "was killed by SIGKILL", "ended with exit code 1"."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def format_time(when: datetime | None) -> str:
    """Format a time in UTC, to the second. None becomes "-"."""
    return "-" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def format_age(length: float | None) -> str:
    """Format a number of seconds in a fitting unit: "0.4 s", "12 s", "3 m", "5 h", "2 d". None becomes "-"."""
    if length is None:
        return "-"
    unit = next((unit for unit in ("d", "h", "m") if length >= 2 * UNITS[unit]), "s")
    amount = length / UNITS[unit]
    return f"{amount:.1f} {unit}" if unit == "s" and amount < 10 else f"{amount:.0f} {unit}"


def format_brief_age(length: float | None) -> str:
    """Format a number of seconds like `format_age`, but in milliseconds below one second: "3.2 ms", "45 ms"."""
    if length is None or length >= 1:
        return format_age(length)
    return f"{1000 * length:.{1 if length < 0.01 else 0}f} ms"


def format_command(
    words: str, schema: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()
) -> str:
    """Build a partbox command line in backticks that can be copied into a shell."""
    # Options select the schema and the subscription if they are not the default.
    parts = ["partbox", *words.split(), *options]
    if subscription not in (None, "default"):
        parts += ["--subscription", str(subscription)]
    if schema != "partbox":
        parts += ["--schema", schema]
    if any(each.startswith("-") for each in arguments):
        parts.append("--")
    return f"`{shlex.join([*parts, *arguments])}`"


def format_hint(name: str, known: Iterable[str], otherwise: str | None = None, likeness: float = 0.6) -> str:
    """Return a "did you mean" hint for a wrong name, or a list of the known names."""
    # The text follows a colon. Without a similar known name, it is `otherwise`. The list of all known names is the last
    # resort.
    names = [*known]
    if near := get_close_matches(name, names, n=1, cutoff=likeness):
        return f"did you mean {near[0]!r}?"
    if otherwise is not None:
        return otherwise
    return f"there are {', '.join(names)}" if names else "leave it out"


def format_no_subscription(name: str, schema: str, others: Sequence[str]) -> str:
    # `others` are the subscriptions of the schema.
    said = f"subscription {name!r} does not exist in schema {schema!r}"
    create = f"`partbox subscription create {shlex.quote(name)}`"
    if not others:
        return f"{said}, which has none: {create} makes it"
    there = f"there {'is' if len(others) == 1 else 'are'} {format_quoted_names(others)}"
    return f"{said}: {there}; {format_hint(name, others, f'check the name, or {create} makes it')}"


def format_quoted_names(names: Sequence[str]) -> str:
    """List up to eight names in quotes and count the others: "'a', 'b' and 3 more"."""
    return format_names([*map(repr, names)], MOST)


def find_node_names(processes: Iterable[NodeProcess]) -> dict[UUID, str]:
    """Return a display name for the host of each worker process, such as "web-1", by the process's instance id."""
    # A host may have several supervisors, whose processes all have its name. Supervisors are numbered in the order of
    # their start, which is the order of their ids (UUIDv7), so a number changes only when an earlier supervisor is
    # gone. Processes without a supervisor id count as one node, the first.
    # "web-1 (2)" stands for the second supervisor on that host.
    found = list(processes)
    known: dict[str, set[UUID | None]] = {}
    for each in found:
        known.setdefault(each.node, set()).add(each.supervisor)
    ranked = {node: sorted(ids, key=lambda id: (id is not None, str(id))) for node, ids in known.items()}
    ranks = {each.instance_id: (each.node, ranked[each.node].index(each.supervisor)) for each in found}
    return {id: f"{node} ({before + 1})" if before else node for id, (node, before) in ranks.items()}
