"""The traffic of a process's sinks, stored in its row of `instance` as an array with one object per sink."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import orjson

from partbox.db.sql import Conn, load_query

DEAD_LETTERS = "dead letters to "
"""The beginning of the name of a sink that gets dead events: the hook, or the target of `--dead-to`."""
SUMMED_FIELDS = ("sent", "in_flight", "retries", "seconds")


@dataclass(frozen=True, slots=True)
class SinkTraffic:
    """The message counts, total time and last error of a process that sends to a broker or another sink."""

    # `sent` messages were acknowledged, which took `seconds` in total. `in_flight` messages have no answer yet, and
    # `retries` were sent again. `error` tells why the last attempt failed, None if a message was acknowledged since,
    # and `failing` for how many seconds sending has failed. Texts are cut and may hold anything.

    sink: str
    sent: int = 0
    in_flight: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str | None = None
    failing: float | None = None

    @property
    def takes_dead_letters(self) -> bool:
        """True if the sink receives events that were given up after failures (dead letters)."""
        return self.sink.startswith(DEAD_LETTERS)

    @property
    def mean(self) -> float | None:
        """The average seconds until the sink acknowledges a message. None before the first one."""
        return self.seconds / self.sent if self.sent else None


def note_traffic(conn: Conn, schema: str, instance: UUID, traffic: Sequence[SinkTraffic]) -> None:
    """Store in a worker's database row how many messages it has sent to each sink."""
    stored = orjson.dumps([asdict(each) for each in traffic]).decode()
    conn.execute(load_query("note_sinks", schema), {"instance": instance, "sinks": stored})


def parse_column(stored: list[dict[str, Any]] | None) -> tuple[SinkTraffic, ...]:
    """Parse the stored message counts of a worker, by sink. An empty column gives an empty tuple."""
    return tuple(SinkTraffic(**each) for each in stored or [])


def merge_traffic(traffic: Iterable[SinkTraffic]) -> list[SinkTraffic]:
    """Sum the message counts of several processes by sink. Failing sinks come first."""
    # If a sink has several errors, the error that has lasted longest is kept.
    found: dict[str, list[SinkTraffic]] = {}
    for each in traffic:
        found.setdefault(each.sink, []).append(each)
    summed = []
    for several in found.values():
        worst = max(several, key=lambda each: each.failing or 0.0)
        summed.append(replace(worst, **{name: sum(getattr(each, name) for each in several) for name in SUMMED_FIELDS}))
    return sorted(summed, key=lambda each: (each.error is None, each.sink))
