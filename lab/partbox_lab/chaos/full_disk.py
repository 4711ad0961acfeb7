"""A full disk under the embedded server: for its data, or for WAL too until PostgreSQL ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
from psycopg import Connection

from partbox.errors import PartboxError
from partbox.platform import boottime as now
from partbox_lab.chaos import statements
from partbox_lab.chaos.disk import SmallDisk, mounted
from partbox_lab.workspace import Workspace

SIZE: Final = 1_024  # megabytes
NOT_OURS: Final = "the server is not ours to fill its disk: use --embedded"
WAL: Final = 4 << 20  # bytes of each write
MOST = 200  # writes
PATIENCE = 60.0  # seconds
LOOK = 0.1  # seconds


class OwnDisk:
    """A small disk for the data of the embedded server, if it is wanted. `lacking` is the reason why there is none."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self.lacking: str | None = NOT_OURS
        self.disk: SmallDisk | None = None

    @contextmanager
    def under(self, folder: Path) -> Iterator[None]:
        """Mount the disk at the folder while the block runs. A failure is kept in `lacking` and raises nothing."""
        with ExitStack() as stack:
            if self._wanted:
                folder.mkdir()
                try:
                    self.disk = stack.enter_context(mounted(folder, SIZE))
                    self.lacking = None
                except PartboxError as error:
                    self.lacking = str(error)
            yield


class FullDisk:
    """The fault of a full disk. `publish` publishes one event or raises `psycopg.OperationalError`."""

    def __init__(self, place: Workspace, disk: SmallDisk, publish: Callable[[], None]) -> None:
        self._place = place
        self._disk = disk
        self._publish = publish
        # A session whose loss shows that the server has ended.
        self._witness: Connection[object] | None = None
        self.since = 0.0

    @property
    def full(self) -> bool:
        """True if the disk is full now."""
        return self._witness is not None

    def begin(self, wal: bool) -> None:
        """Fill the disk, with `wal` until the server ends. Raise `OperationalError` if the server is away."""
        self._witness, self.since = self._place.connect("chaos"), now()
        self._disk.fill()
        if wal:
            with suppress(psycopg.OperationalError), self._place.connect("chaos") as conn:
                for _ in range(MOST):
                    statements.write_wal(conn, self._place.schema, WAL)

    def end(self) -> bool:
        """Make room, restart the server if it has ended, publish, and return True if it had ended. Raise `PartboxError`
        if publishing fails for `PATIENCE` seconds."""
        witness, self._witness = self._witness, None
        if witness is None:
            return False
        self._disk.make_room()
        self._go_on()
        with witness:
            return not _answers(witness)

    def _go_on(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if self._place.server is not None:
                    self._place.server.start()
                return self._publish()
            except (psycopg.OperationalError, PartboxError) as error:
                if time.monotonic() > until:
                    raise PartboxError(f"publishing does not go on though the disk has room: {error}") from error
                time.sleep(LOOK)


def _answers(conn: Connection[object]) -> bool:
    try:
        conn.execute("select 1")
    except psycopg.OperationalError:
        return False
    return True
