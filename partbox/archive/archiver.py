"""Archives what has expired, before a purge may remove it: file by file, each noted once it is there for good."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from partbox.archive.files import Part
from partbox.archive.place import Place, place_of
from partbox.db import connect
from partbox.db.operator import archive as steps
from partbox.db.operator.archive import ArchiveRow
from partbox.db.schema.patience import described, holders
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.settings import Settings
from partbox.text.wording import counted, size

PATIENCE: Final = 30.0  # seconds that a statement may take
MOST, BYTES = 5_000, 1 << 20
"""Records of one read, and their bytes on disk, which may be far more in memory."""
FILE, FILE_BYTES = 1_000_000, 256 << 20
"""Records of a file at most, and bytes of its lines."""
LATER: Final = 1.25
"""Record by record nobody is in a hurry: what has expired waits for a quarter of the retention, and fills one file."""


@dataclass(frozen=True, slots=True)
class Archived:
    """The records that were archived, in how many files, and the bytes of those.

    `problem`: what failed, so that not all that is due was archived; `waiting`: what stands in the way for a while.
    """

    records: int = 0
    files: int = 0
    size: int = 0
    problem: str | None = None
    waiting: str | None = None

    def __str__(self) -> str:
        return f"{counted(self.records, 'record')} in {counted(self.files, 'file')} of {size(self.size)}"


def archive(
    conn: Conn,
    dsn: Callable[[], str],
    settings: Settings,
    needed: int,
    *,
    patient: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[Archived], None] = lambda sofar: None,
) -> Archived:
    """Archive what is due over a connection to a whole outbox, and one more: all that has expired, and up to `needed`.

    An archive is kept from the first time that its place can be written: one that cannot be, such as a typing error,
    must not keep all purges from deleting. Without the setting nothing is done; with `patient`, nothing for a few
    expired records. What fails is a `problem` of the result, noted for doctor; what was archived before stays so.
    Raises psycopg.Error.
    """
    if settings.archive is None:
        return Archived()
    schema = settings.schema_name
    if (problem := _keep(conn, settings, settings.archive)) is not None:
        return Archived(problem=problem)
    if not _is_due(conn, settings, needed, LATER if patient else 1.0):
        return Archived()
    upto = steps.settle(conn, schema)
    work = _Work(conn, settings, needed, upto, stopped, progress)
    with (
        connect.connect(dsn(), lease=PATIENCE, pooler=settings.pooler, name="partbox archive") as other,
        steps.alone(other, schema) as alone,
    ):
        try:
            if not alone:
                return Archived(waiting=f"{described(holders(conn, 'archive_others', schema))} archiving just now")
            done = work.run(place_of(settings.archive))
        except PartboxError as error:
            steps.failed(conn, schema, str(error))
            return replace(work.done, problem=str(error))
    return done if stopped() else replace(done, waiting=_held_up(conn, settings, needed, upto))


def _keep(conn: Conn, settings: Settings, place: str) -> str | None:
    """Keep an archive from now on, if none is kept; return the reason why its place cannot be written, or None."""
    if not is_kept(conn, settings):
        try:
            place_of(place).probe()
        except PartboxError as error:
            return str(error)
        steps.begin(conn, settings.schema_name)
    return None


def _held_up(conn: Conn, settings: Settings, needed: int, upto: int) -> str | None:
    """Return what is in the way if something is due above `upto`, below which no record can appear any more."""
    fence = steps.state(conn, settings.schema_name).fence
    if fence is None or fence.drawn <= upto or not _is_due(conn, settings, needed, 1.0):
        return None
    found = holders(conn, "archive_holders", settings.schema_name)
    if not found:
        return "a transaction was in the way that has just ended: repeat this"
    return f"{described(found)} in the way, for what {'it' if len(found) == 1 else 'they'} may still write goes before"


def is_kept(conn: Conn, settings: Settings) -> bool:
    """True if the archive that the settings want is kept, or they want none; else nothing may leave the log."""
    return settings.archive is None or steps.state(conn, settings.schema_name).archived is not None


def waiting(conn: Conn, settings: Settings, needed: int) -> int:
    """The records that `archive` would write now, counted without writing anything."""
    state = steps.state(conn, settings.schema_name)
    after = -1 if state.archived is None else state.archived
    return steps.count(conn, settings.schema_name, after, steps.LAST, needed, settings.retain_done)


def _is_due(conn: Conn, settings: Settings, needed: int, factor: float) -> bool:
    archived = steps.state(conn, settings.schema_name).archived or 0
    if archived < needed:
        return True
    age = steps.oldest(conn, settings.schema_name, archived)
    return age is not None and age > factor * settings.retain_done


@dataclass(slots=True)
class _Work:
    """One run: files, one after the other, of all that has expired or is up to `needed`, and settled: up to `upto`."""

    conn: Conn
    settings: Settings
    needed: int
    upto: int
    stopped: Callable[[], bool]
    progress: Callable[[Archived], None]
    done: Archived = field(default_factory=Archived)
    over: bool = False

    def run(self, place: Place) -> Archived:
        after = steps.state(self.conn, self.settings.schema_name).archived
        while after is not None and not self.over:
            after = self._file(place, after)
        return self.done

    def _file(self, place: Place, after: int) -> int:
        """Write one file of what follows `after`, and note that it is there; returns its last id."""
        with place.writing() as file:
            part = Part(place, file)
            while part.records < FILE and part.size < FILE_BYTES and not self.over:
                rows = self._next(after)
                for row in rows:
                    part.write(row)
                after = rows[-1].id if rows else after
            if self.stopped() or not part.records:
                self.over = True
                return after
            kept = part.keep()
        steps.done(self.conn, self.settings.schema_name, after)
        self.done = Archived(self.done.records + part.records, self.done.files + 1, self.done.size + kept)
        self.progress(self.done)
        return after

    def _next(self, after: int) -> list[ArchiveRow]:
        """The next records that are due; after the last of those it is over.

        Ids and times rise together, nearly: it is over where a read ends in a young record, and those before an old one
        go with it.
        """
        if self.stopped():
            self.over = True
            return []
        schema, retain = self.settings.schema_name, self.settings.retain_done
        rows = steps.rows(self.conn, schema, after, self.upto, retain, MOST, BYTES)
        due = [place for place, row in enumerate(rows, 1) if row.expired or row.id <= self.needed]
        taken = due[-1] if due else 0
        self.over = taken < len(rows) or not rows
        return rows[:taken]
