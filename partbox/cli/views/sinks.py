"""The traffic of a subscription's sinks, as `status` shows it."""

from partbox.db.delivery.traffic import Traffic
from partbox.db.inspect.stats import Cluster
from partbox.text.wording import age, brief, in_short

COLUMNS = ("sink", "sent", "in flight", "acknowledged in", "sent again", "trouble")
CUT = 60  # characters of a name or an error


def rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """A row for each sink."""
    return [_row(each) for each in cluster.sinks]


def _row(each: Traffic) -> tuple[str, ...]:
    trouble = "" if each.error is None else f"for {age(each.failing)}: {in_short(each.error, CUT)}"
    return (
        in_short(each.sink, CUT),
        f"{each.sent:,}",
        f"{each.in_flight:,}",
        brief(each.mean),
        f"{each.retries:,}",
        trouble,
    )
