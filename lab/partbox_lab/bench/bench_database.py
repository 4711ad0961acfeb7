"""The database that the bench measures in: its schema, its backlog, and waits that Ctrl-C ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import make_conninfo

from partbox.db.schema.migrate import migrate
from partbox.demo.workspace import drop_schema
from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.terminal.interrupts import Interrupts
from partbox_lab.bench import statements
from partbox_lab.bench.sizes import Sizes
from partbox_lab.bench.statements import ReadPosition
from partbox_lab.bench.workspace import bench_workspace
from partbox_lab.workspace import Workspace

PATIENCE = 600.0  # seconds
CHUNK = 100_000  # records per statement
LOOK = 0.05  # seconds between two checks of a condition
CONNECTIONS = 100  # of another server
BEGINNING = ReadPosition("1:1:", 0)


class BenchDatabase:
    """The schema that the bench measures in. `conn` is an autocommit connection of the bench. `failure()` returns the
    reason why worker processes ended, or an empty string. `say(text)` prints progress."""

    def __init__(
        self,
        place: Workspace,
        sizes: Sizes,
        interrupts: Interrupts,
        failure: Callable[[], str],
        say: Callable[[str], None],
    ) -> None:
        self.sizes = sizes
        self.schema = place.schema
        self.folder = place.folder
        self.embedded = place.server is not None
        self.dsn = place.dsn
        self.name = place.named("node")
        self.failure = failure
        self.say = say
        self.conn = place.connect("bench")
        self._interrupts = interrupts
        self._loaded = 0

    @contextmanager
    def other_server(self, **settings: str) -> Iterator["BenchDatabase"]:
        """Yield a database on an embedded server of its own, which has these settings of PostgreSQL."""
        with bench_workspace(None, CONNECTIONS, binaries=None, **settings) as place:
            other = BenchDatabase(place, self.sizes, self._interrupts, self.failure, self.say)
            with other.conn:
                yield other

    @property
    def at_once(self) -> bool:
        """True if the user does not want to wait for an orderly stop, so that processes are killed."""
        return self._interrupts.immediate_stop.is_set()

    def outbox(self, handler: Any = None, subscription: str = "default", **settings: Any) -> Outbox:
        """Return an enabled outbox whose sessions are called `name` in `pg_stat_activity`. A handler gets all events of
        the subscription."""
        dsn = make_conninfo(self.dsn, application_name=self.name)
        made = Outbox(dsn, **{"schema": self.schema, "enabled": True, **settings})
        if handler is not None:
            made.register(handler, "*", subscription=subscription)
        return made

    def check(self) -> None:
        """Raise KeyboardInterrupt if the user pressed Ctrl-C. Only calls of this method end the bench, so no step is
        left half done."""
        if self._interrupts.stop_requested.is_set():
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Sleep for `seconds`. Raise KeyboardInterrupt as soon as the user interrupts."""
        self._interrupts.stop_requested.wait(seconds)
        self.check()

    def until(self, reached: Callable[[], bool], what: str, seconds: float = PATIENCE, look: float = LOOK) -> None:
        """Wait until `reached` returns True, and check every `look` seconds. Raise PartboxError after `seconds`, naming
        `what`."""
        end = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > end:
                raise PartboxError(f"{what} took longer than {seconds:g} s: {self.failure() or 'nobody said why'}")
            self.pause(look)

    def fresh(self) -> None:
        """Drop the schema and create it anew."""
        drop_schema(self.conn, self.schema)
        migrate(self.dsn, self.schema)
        self._loaded = 0

    def backlog(self, events: int) -> None:
        """Rewind to a backlog of `events`. The events are loaded only if the log does not hold exactly this backlog
        already."""
        if self._loaded != events:
            self.fresh()
            self.load(events)
        self.rewind()
        self._loaded = events

    def load(self, events: int) -> None:
        """Append records as publishers would leave them: committed, vacuumed and analyzed. The log is then no known
        backlog."""
        self._loaded = 0
        for first in range(1, events + 1, CHUNK):
            self.check()
            statements.load(self.conn, self.schema, first, min(first + CHUNK - 1, events))
        self.check()
        statements.vacuum(self.conn, self.schema)

    def clear(self) -> None:
        """Remove every record. The sequence of ids goes on."""
        self._loaded = 0
        statements.clear(self.conn, self.schema)

    def rewind(self, position: ReadPosition = BEGINNING) -> None:
        """Set the cursors of all partitions to `position`, and remove owners and parked rows."""
        statements.rewind(self.conn, self.schema, position)
