"""Makes segments ahead of need, and words the remedy where the server refuses it.

A small default segment is searched while it is locked, which takes milliseconds. A large one would keep publishers out
for minutes; so first a constraint keeps the new ids out of it, then it is validated, which locks nobody out, and then
nothing needs to be searched. Until the segments are there, drawing one of those ids would fail: they lie a day ahead,
and whoever looks next ends a constraint that a killed process has left, unless it needs one itself.
"""

from collections.abc import Callable, Sequence
from functools import partial

from partbox.db import connect
from partbox.db.operator import segments as steps
from partbox.db.sql import Conn
from partbox.observe.logs.log_event import FULL_DISK
from partbox.protocol import segments as rules
from partbox.protocol.segments import EventTrigger, Range
from partbox.segments.patience import tried
from partbox.settings import Settings

LONGEST = 6 * 3600.0  # seconds that the search of a large default segment may take


def make(conn: Conn, dsn: Callable[[], str], settings: Settings) -> tuple[str, ...]:
    """Make what is missing; the names of what was made."""
    schema = settings.schema_name
    found, drawn = steps.segments(conn, schema), steps.drawn(conn, schema)
    pace = rules.rate(steps.stretches(conn, schema))
    ids = rules.length(pace, settings.retain_done, rules.fitting(found, settings.retain_size))
    wanted = rules.wanted(found, drawn, pace, ids)
    large = rules.large_net(found)
    _end_proof(conn, schema, needed=bool(wanted) and large)
    if not wanted or (large and not _prove(dsn, settings, Range(wanted[0].lower, wanted[-1].upper))):
        return ()
    made = _add(conn, schema, wanted)
    _end_proof(conn, schema, needed=len(made) < len(wanted))
    return made


def _add(conn: Conn, schema: str, wanted: list[Range]) -> tuple[str, ...]:
    """Make these in order, until something is in the way."""
    made: list[str] = []
    for each in wanted:
        if tried(partial(steps.add, conn, schema, each)) is not None:
            break
        made.append(f"record_{each.lower}")
    return tuple(made)


def _prove(dsn: Callable[[], str], settings: Settings, ids: Range) -> bool:
    """Prove that the default segment holds none of these ids; False: something is in the way."""
    schema = settings.schema_name
    with connect.connect(dsn(), lease=LONGEST, pooler=settings.pooler, name="partbox segments") as conn:
        excluded = tried(partial(steps.exclude, conn, schema, ids)) is None
        return excluded and tried(partial(steps.prove, conn, schema)) is None


def _end_proof(conn: Conn, schema: str, *, needed: bool) -> None:
    """End the constraint on the default segment, if there is one, unless it is `needed` for the next segments.

    A needed one ends as well before publishing comes to its ids.
    """
    proof = steps.proof(conn, schema)
    if proof is not None and not (needed and not rules.reachable(proof[0], steps.drawn(conn, schema))):
        tried(partial(steps.exclude, conn, schema, None))


def refused(problem: str, triggers: Sequence[EventTrigger]) -> str:
    """The server's reason, with the remedy where event triggers of the database may be the cause."""
    if problem.startswith(FULL_DISK):
        return problem
    if not triggers:
        return f"{problem}: remove the cause, all goes on by itself"
    return f"{problem}: event triggers run in it: {', '.join(map(str, triggers))}: {qualified(triggers)}"


def qualified(triggers: Sequence[EventTrigger]) -> str:
    """The remedy for event triggers that do not find their tables where segments are made."""
    commands = ", ".join(f"`alter function {each.function} set search_path = …`" for each in triggers)
    return (
        "segments are made with an empty search_path and as the owner of the log, so let each name its tables with "
        f"their schema, or {commands}"
    )
