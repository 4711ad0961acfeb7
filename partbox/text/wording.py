"""Numbers, lengths of time, names, long texts, commands and hints about wrong names, as people read them."""

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
    """A worker process; `supervisor` is None of versions that do not say theirs."""

    @property
    def instance_id(self) -> UUID: ...
    @property
    def node(self) -> str: ...
    @property
    def supervisor(self) -> UUID | None: ...


def in_short(text: str, most: int = 120) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def counted(number: int, what: str) -> str:
    """ "1 record", "1,234 records", "2 processes"."""
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def several(names: Sequence[str], most: int = 5) -> str:
    """ "a, b, c, d, e and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def size(count: int) -> str:
    """Bytes as people say them: "812 B", "64 kB", "3.4 GB"; a kB is 1,024 bytes, as PostgreSQL has it."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 10 else f"{amount:.0f} {unit}"


def describe_exit(code: int | None) -> str:
    """The end of a process in words: "was killed by SIGKILL", "ended with exit code 1"."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def moment(when: datetime | None) -> str:
    """A time in UTC, to the second; "-" for None."""
    return "-" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


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


def node_names(processes: Iterable[NodeProcess]) -> dict[UUID, str]:
    """The name of each process's node, by its instance id: "web-1", of the second supervisor there "web-1 (2)".

    A host may have several supervisors, whose processes all have its name. They are numbered in the order in which
    they were started, which their ids keep (UUIDv7); the number of one changes only when an earlier one is gone.
    Processes that do not say theirs are one node, the first.
    """
    found = list(processes)
    known: dict[str, set[UUID | None]] = {}
    for each in found:
        known.setdefault(each.node, set()).add(each.supervisor)
    ranked = {node: sorted(ids, key=lambda id: (id is not None, str(id))) for node, ids in known.items()}
    ranks = {each.instance_id: (each.node, ranked[each.node].index(each.supervisor)) for each in found}
    return {id: f"{node} ({before + 1})" if before else node for id, (node, before) in ranks.items()}
