"""`partbox segments`: lists the segments of the log."""

from typing import Any

from partbox.cli.shell.flags import database
from partbox.cli.shell.options import OutboxOptions, with_option_groups
from partbox.cli.shell.output import console, print_json, printable, table
from partbox.errors import PartboxError
from partbox.operations.purge import list_segments
from partbox.segments.retention import SegmentRetention, list_reasons
from partbox.text.wording import age, size

COLUMNS = ("name", "first id", "below id", "size", "oldest", "newest", "kept by")


@with_option_groups
def segments(*, outbox: OutboxOptions) -> None:
    """List the segments of the log: their ids, their sizes, the ages of their records, and the reasons to keep them.

    Workers and purges make segments ahead of need, empty them when every subscription has passed them and retain_done
    is over, and drop them. For a segment that is not full, and for the default segment, "kept by" refers to the oldest
    record.

    Example: partbox segments --json
    """
    settings = outbox.settings()
    found = list_segments(lambda: database(settings), settings)
    if not found:
        raise PartboxError("this schema holds nothing but an inbox, and no log: partbox init makes it a whole outbox")
    if outbox.json:
        print_json([_to_json(each) for each in found])
        return
    console().print(table(COLUMNS, map(_row, found), COLUMNS[1:6], COLUMNS[:1]))


def _to_json(held: SegmentRetention) -> dict[str, Any]:
    holds = [hold._asdict() for hold in held.holds]
    return held.segment._asdict() | {"goes": held.goes, "record": held.record, "holds": holds}


def _row(held: SegmentRetention) -> tuple[str, ...]:
    each = held.segment
    ids = ("" if each.lower is None else f"{each.lower:,}", "" if each.upper is None else f"{each.upper:,}")
    kept = "; ".join(list_reasons(held)) or ("nothing: it is emptied next" if held.goes else "")
    return (each.name, *ids, size(each.size), age(each.oldest_age), age(each.newest_age), printable(kept))
