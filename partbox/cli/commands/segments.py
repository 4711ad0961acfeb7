"""`partbox segments`: lists the segments of the log."""

from typing import Any

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import OutboxOptions, with_option_groups
from partbox.cli.shell.output import build_table, escape_unprintable, make_console, print_json
from partbox.errors import PartboxError
from partbox.operations.purge import list_segments
from partbox.segments.retention import SegmentRetention, list_reasons
from partbox.text.wording import format_age, format_size

COLUMNS = ("name", "first id", "below id", "size", "oldest", "newest", "kept by")


@with_option_groups
def segments(*, outbox: OutboxOptions) -> None:
    """List the segments of the log: their ids, their sizes, the ages of their records, and the reasons to keep them.

    Workers and purges make segments ahead of need, empty them when every subscription has passed them and retain_done
    is over, and drop them. For a segment that is not full, and for the default segment, "kept by" refers to the oldest
    record.

    Example: partbox segments --json
    """
    settings = outbox.load_settings()
    found = list_segments(lambda: build_dsn(settings), settings)
    if not found:
        raise PartboxError("this schema holds nothing but an inbox, and no log: partbox init makes it a whole outbox")
    if outbox.json:
        print_json([_to_json(each) for each in found])
        return
    make_console().print(build_table(COLUMNS, map(_build_row, found), COLUMNS[1:6], COLUMNS[:1]))


def _to_json(held: SegmentRetention) -> dict[str, Any]:
    holds = [hold._asdict() for hold in held.holds]
    return held.segment._asdict() | {"goes": held.is_emptied_next, "record": held.record, "holds": holds}


def _build_row(held: SegmentRetention) -> tuple[str, ...]:
    each = held.segment
    ids = ("" if each.lower is None else f"{each.lower:,}", "" if each.upper is None else f"{each.upper:,}")
    kept = "; ".join(list_reasons(held)) or ("nothing: it is emptied next" if held.is_emptied_next else "")
    return (
        each.name,
        *ids,
        format_size(each.size),
        format_age(each.oldest_age),
        format_age(each.newest_age),
        escape_unprintable(kept),
    )
