"""The reasons to keep a segment, or not to change one, in words."""

from collections.abc import Sequence

from partbox.db.operator.segments import Hold
from partbox.observe.logs.log_event import FULL_DISK
from partbox.protocol.segments import EventTrigger
from partbox.segments.retention import Held
from partbox.text.wording import counted


def reasons(held: Held) -> list[str]:
    """All that keeps a segment, a phrase each; of its oldest record where that was asked about."""
    about = "" if held.record is None else f"record {held.record}, its oldest: "
    return [about + _phrase(each, held.record is not None) for each in held.holds]


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


def _phrase(hold: Hold, single: bool) -> str:
    match hold.reason:
        case "open":
            return "it is not full yet"
        case "young":
            return "younger than retain_done" if single else "its newest records are younger than retain_done"
        case "archive":
            return "not archived yet" if single else "its newest records are not archived yet"
        case "empty":
            return "dead: replay or discard it" if single else "nothing is in it but dead records, which are kept"
        case "cursor":
            return f"subscription {hold.subscription!r} has not passed it: partition {hold.partition} is at {hold.id}"
        case "parked":
            return (
                f"subscription {hold.subscription!r} has {counted(hold.rows or 0, 'record')} of it parked, "
                f"the first is {hold.id} in partition {hold.partition}"
            )
        case "dead":
            return f"{counted(hold.rows or 0, 'dead record')} are too many to set aside: replay or discard them"
        case other:
            return other
