"""Purging: deletes what every subscription has consumed and is older than its retention, in small steps.

Dead rows go first, because a record stays as long as it is parked anywhere. A step is a transaction of its own under a
lock that only one purge holds at a time; a purge that does not get it stops, for another is doing the work.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import Connection

from partbox.db import connect
from partbox.db.operator import purge as steps
from partbox.db.schema import migrate
from partbox.settings import Settings

PATIENCE = 30.0  # seconds a step may take; a worker's lease is no measure for it
DRY_BATCH = 10_000

Take = Callable[..., steps.PurgeStep | None]


@dataclass(frozen=True, slots=True)
class Purged:
    """The rows that were deleted, or would be. `dead` counts parked rows; their records count as `records` in time.

    `complete` is False when it was stopped, or when another purge was at work, which goes on with it.
    """

    records: int = 0
    dead: int = 0
    keys: int = 0
    inbox: int = 0
    complete: bool = True

    @property
    def total(self) -> int:
        return self.records + self.dead + self.keys + self.inbox

    def __str__(self) -> str:
        counts = {
            "record": self.records,
            "dead row": self.dead,
            "idempotency key": self.keys,
            "inbox row": self.inbox,
        }
        said = [f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
        return ", ".join(said) or "nothing"


def purge(
    dsn: Callable[[], str],
    settings: Settings,
    *,
    dry_run: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[Purged], None] = lambda sofar: None,
) -> Purged:
    """Purge once, on a connection of its own, or count what would be deleted; the result.

    Between two steps `stopped()` may end it, and `progress` hears what went so far. Raises SchemaError, psycopg.Error.
    """
    counts: Counter[str] = Counter()
    with connect.connect(dsn(), lease=PATIENCE, pooler=settings.pooler, name="partbox purge") as conn:
        for kind, take in _kinds(conn, settings, dry_run):
            place: Sequence[int] | None = steps.START
            while place is not None:
                step = None if stopped() else take(conn, settings.schema_name, place, dry_run=dry_run)
                if step is None:
                    return Purged(**counts, complete=False)
                counts[kind] += step.gone
                place = step.onward
                progress(Purged(**counts, complete=False))
    return Purged(**counts, complete=True)


def _kinds(conn: Connection[Any], settings: Settings, dry_run: bool) -> Iterator[tuple[str, Take]]:
    """The kinds of rows to purge, in order; of a schema that holds nothing but an inbox, that alone."""
    batch = max(settings.purge_batch, DRY_BATCH) if dry_run else settings.purge_batch
    if not migrate.is_inbox_only(conn, settings.schema_name):
        migrate.check(conn, settings.schema_name)
        connect.check(conn, settings.schema_name)
        done, dead = settings.retain_done, settings.retain_dead
        yield "dead", partial(steps.dead, retain=dead, batch=batch)
        yield "records", partial(steps.records, retain=done, retain_dead=dead, batch=batch)
        yield "keys", partial(steps.keys, retain=settings.retain_keys, batch=batch)
    yield "inbox", partial(steps.inbox, retain=settings.retain_inbox, batch=batch)
