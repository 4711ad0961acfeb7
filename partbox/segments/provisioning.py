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
from partbox.protocol.segments import EventTrigger, IdRange
from partbox.segments.attempts import try_step
from partbox.settings import Settings

PROOF_TIMEOUT = 6 * 3600.0  # seconds that the search of a large default segment may take


def make_segments(conn: Conn, dsn: Callable[[], str], settings: Settings) -> tuple[str, ...]:
    """Make what is missing; the names of what was made."""
    schema = settings.schema_name
    found, drawn = steps.segments(conn, schema), steps.drawn(conn, schema)
    pace = rules.id_rate(steps.list_stretches(conn, schema))
    ids = rules.segment_length(pace, settings.retain_done, rules.length_for_size(found, settings.retain_size))
    segments_to_add = rules.segments_to_add(found, drawn, pace, ids)
    large = rules.has_large_default(found)
    _end_exclusion(conn, schema, needed=bool(segments_to_add) and large)
    if not segments_to_add or (
        large and not _prove_absence(dsn, settings, IdRange(segments_to_add[0].lower, segments_to_add[-1].upper))
    ):
        return ()
    made = _add_segments(conn, schema, segments_to_add)
    _end_exclusion(conn, schema, needed=len(made) < len(segments_to_add))
    return made


def _add_segments(conn: Conn, schema: str, segments_to_add: list[IdRange]) -> tuple[str, ...]:
    """Make these in order, until something is in the way."""
    made: list[str] = []
    for each in segments_to_add:
        if try_step(partial(steps.add, conn, schema, each)) is not None:
            break
        made.append(f"record_{each.lower}")
    return tuple(made)


def _prove_absence(dsn: Callable[[], str], settings: Settings, ids: IdRange) -> bool:
    """Prove that the default segment holds none of these ids; False: something is in the way."""
    schema = settings.schema_name
    with connect.connect(dsn(), lease=PROOF_TIMEOUT, pooler=settings.pooler, name="partbox segments") as conn:
        excluded = try_step(partial(steps.exclude, conn, schema, ids)) is None
        return excluded and try_step(partial(steps.prove, conn, schema)) is None


def _end_exclusion(conn: Conn, schema: str, *, needed: bool) -> None:
    """End the constraint on the default segment, if there is one, unless it is `needed` for the next segments.

    A needed one ends as well before publishing comes to its ids.
    """
    exclusion = steps.exclusion(conn, schema)
    if exclusion is not None and not (needed and not rules.must_end_proof(exclusion[0], steps.drawn(conn, schema))):
        try_step(partial(steps.exclude, conn, schema, None))


def refusal_text(problem: str, triggers: Sequence[EventTrigger]) -> str:
    """The server's reason, with the remedy where event triggers of the database may be the cause."""
    if problem.startswith(FULL_DISK):
        return problem
    if not triggers:
        return f"{problem}: remove the cause, all goes on by itself"
    return f"{problem}: event triggers run in it: {', '.join(map(str, triggers))}: {trigger_remedy(triggers)}"


def trigger_remedy(triggers: Sequence[EventTrigger]) -> str:
    """The remedy for event triggers that do not find their tables where segments are made."""
    commands = ", ".join(f"`alter function {each.function} set search_path = …`" for each in triggers)
    return (
        "segments are made with an empty search_path and as the owner of the log, so let each name its tables with "
        f"their schema, or {commands}"
    )
