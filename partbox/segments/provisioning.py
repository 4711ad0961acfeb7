"""Make segments ahead of need, and explain the remedy if the server refuses."""

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
    """Create the missing segments (table partitions) of the log that will be needed soon. Return their names."""
    # Attaching a segment locks publishers out of the default segment alone, while that is searched for ids of the new
    # segment. The default segment is normally empty, and the search of a small one takes milliseconds. The search of a
    # large one would lock publishers out for minutes, so a constraint proves first that it holds none of the ids.
    # A segment is a partition of the log by ids.
    schema = settings.schema_name
    found, drawn = steps.list_segments(conn, schema), steps.find_newest_id(conn, schema)
    pace = rules.compute_id_rate(steps.list_stretches(conn, schema))
    ids = rules.compute_segment_length(
        pace, settings.retain_done, rules.compute_length_for_size(found, settings.retain_size)
    )
    segments_to_add = rules.plan_segments(found, drawn, pace, ids)
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
    made: list[str] = []
    for each in segments_to_add:
        if try_step(partial(steps.add_segment, conn, schema, each)) is not None:
            break
        made.append(f"record_{each.lower}")
    return tuple(made)


def _prove_absence(dsn: Callable[[], str], settings: Settings, ids: IdRange) -> bool:
    """Prove that the default segment contains no record with the given ids. Return False if that fails."""
    # The constraint first keeps new ids out of the default segment, and is then validated, which locks nobody out.
    # The validated constraint is the proof, and the default segment need not be searched. Until the new segments exist,
    # a publisher that draws one of the ids would fail. The ids lie a day ahead. If a killed process leaves its
    # constraint behind, the next maintenance removes the constraint, unless it needs it itself.
    schema = settings.schema_name
    with connect.connect(dsn(), lease=PROOF_TIMEOUT, pooler=settings.pooler, name="partbox segments") as conn:
        excluded = try_step(partial(steps.exclude_ids, conn, schema, ids)) is None
        return excluded and try_step(partial(steps.prove_exclusion, conn, schema)) is None


def _end_exclusion(conn: Conn, schema: str, *, needed: bool) -> None:
    """Remove the constraint that keeps ids out of the default segment, unless it is still `needed`."""
    # There may be no constraint. It is needed for the next segments. A needed constraint is removed too before ids in
    # its range are drawn.
    exclusion = steps.find_exclusion(conn, schema)
    if exclusion is not None and not (
        needed and not rules.must_end_proof(exclusion[0], steps.find_newest_id(conn, schema))
    ):
        try_step(partial(steps.exclude_ids, conn, schema, None))


def describe_refusal(problem: str, triggers: Sequence[EventTrigger]) -> str:
    """Describe why the server refused to create or change a segment of the log."""
    # The text has the remedy if event triggers of the database may be the cause.
    if problem.startswith(FULL_DISK):
        return problem
    if not triggers:
        return f"{problem}: remove the cause, and partbox goes on by itself"
    named = ", ".join(map(str, triggers))
    return f"{problem}: event triggers run in this step: {named}: {describe_trigger_remedy(triggers)}"


def describe_trigger_remedy(triggers: Sequence[EventTrigger]) -> str:
    """Return the remedy for event triggers that do not find their tables while a segment is created."""
    commands = ", ".join(f"`alter function {each.function} set search_path = …`" for each in triggers)
    return (
        "segments are made with an empty search_path and by the owner of the log, so let each trigger name its tables "
        f"with their schema, or run {commands}"
    )
