"""Segments of the log: made ahead of need, emptied whole when every subscription has passed them, dropped when empty.

Each step is one call of a function in the database, and one transaction: it is done, or nothing is. What is in use just
now is not waited for, for everybody else would wait behind: it is tried again at the next look.

`record` is range-partitioned by id. Three statements change that, and their locks decide how each is done:

- Attaching a table locks publishers out of the default segment alone, for the time it takes to search that for ids of
  the new one. It is empty as a rule; a large one is proven to hold none before, by a constraint that is validated
  while publishers go on (`ahead`).
- TRUNCATE locks one segment, but polls lock all of them: it is asked for only where nobody stays, and all that can be
  done before it is.
- DETACH locks the whole log for an instant, so it is left for later, and one is taken out at a time. What was taken out
  is dropped: that waits for the disc, but nobody for it.

Each waits 25 ms at most for its first lock, and under it for no other.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from partbox.archive.archiver import ArchiveResult, archive, is_kept
from partbox.db import connect
from partbox.db.operator import segments as steps
from partbox.db.schema import migrate
from partbox.db.sql import Conn
from partbox.segments.attempts import Attempts
from partbox.segments.provisioning import make_segments, refusal_text
from partbox.segments.retention import drop, empty, needed
from partbox.settings import Settings
from partbox.text.wording import size

STATEMENT_TIMEOUT = 30.0  # seconds that a statement may take; a worker's lease is no measure for it


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The names of the segments that were made, emptied and dropped, and the bytes that this gave back.

    `archived`: the records that were written to the archive before. `problem`: why the server refused one of these
    steps, with the remedy.
    """

    made: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    freed: int = 0
    archived: ArchiveResult = field(default_factory=ArchiveResult)
    problem: str | None = None

    def __bool__(self) -> bool:
        return bool(self.made or self.emptied or self.dropped)

    def __str__(self) -> str:
        lists = {
            "made": self.made,
            f"emptied, which freed {size(self.freed)}": self.emptied,
            "dropped": self.dropped,
        }
        return ", ".join(f"{' '.join(names)} {what}" for what, names in lists.items() if names) or "nothing to do"


def maintain_segments(
    dsn: Callable[[], str], settings: Settings, stopped: Callable[[], bool] = lambda: False
) -> SegmentReport:
    """Look at the segments once, on a connection of its own, and do what is due; the result.

    Between two steps `stopped()` may end it. Raises SchemaError, psycopg.Error. Nothing but an inbox has no segments.
    """
    with connect.connect(dsn(), lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name="partbox segments") as conn:
        if migrate.is_inbox_only(conn, settings.schema_name):
            return SegmentReport()
        migrate.check(conn, settings.schema_name)
        return maintain_over(conn, dsn, settings, stopped, patient=True)


def maintain_over(
    conn: Conn,
    dsn: Callable[[], str],
    settings: Settings,
    stopped: Callable[[], bool],
    *,
    patient: bool,
    progress: Callable[[ArchiveResult], None] = lambda sofar: None,
) -> SegmentReport:
    """The same over a connection to a whole outbox; to search a large default segment, and to archive, it opens one
    more. What is archived may go; unless `patient`, that is all that has expired."""
    attempts, nothing = Attempts(), tuple[str, ...]()
    made = attempts.take(partial(make_segments, conn, dsn, settings), nothing)
    due = needed(conn, settings)
    archived = archive(conn, dsn, settings, due, patient=patient, stopped=stopped, progress=progress)
    emptied, freed = nothing, 0
    if is_kept(conn, settings):
        emptied, freed = attempts.take(partial(empty, conn, settings, stopped), (nothing, 0))
    dropped = nothing if stopped() else attempts.take(partial(drop, conn, settings), nothing)
    problem = attempts.problem
    attempts.take(
        partial(steps.note_problem, conn, settings.schema_name, problem), None
    )  # for doctor; None: it refused none
    if problem is not None:
        problem = refusal_text(problem, steps.event_triggers(conn, settings.schema_name))
    return SegmentReport(made, emptied, dropped, freed, archived, problem)
