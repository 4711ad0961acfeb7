"""The database on which lines are measured: the schema, its backlog, and a wait that Ctrl-C ends."""

import time
from collections.abc import Callable
from typing import Any

from psycopg.conninfo import make_conninfo

from partbox.db.schema.migrate import migrate
from partbox.demo.workspace import drop
from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.terminal.interrupts import Interrupts
from partbox_lab.bench import statements
from partbox_lab.bench.sizes import Sizes
from partbox_lab.bench.statements import ReadPosition
from partbox_lab.workspace import Workspace

PATIENCE = 600.0
CHUNK = 100_000
LOOK = 0.05
BEGINNING = ReadPosition("1:1:", 0)


class BenchDatabase:
    """`conn` is an autocommit connection of the bench; `failure()` says why worker processes ended, if they say;
    `say(text)` tells people what goes on."""

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

    @property
    def at_once(self) -> bool:
        """True if whoever waits does not want to wait for an orderly end."""
        return self._interrupts.at_once.is_set()

    def outbox(self, handler: Any = None, subscription: str = "default", **settings: Any) -> Outbox:
        """An outbox on this schema, whose sessions `pg_stat_activity` shows by `name`; `handler` gets every event of
        the subscription."""
        dsn = make_conninfo(self.dsn, application_name=self.name)
        made = Outbox(dsn, **{"schema": self.schema, "enabled": True, **settings})
        if handler is not None:
            made.register(handler, "*", subscription=subscription)
        return made

    def check(self) -> None:
        """KeyboardInterrupt after Ctrl-C: only here and where this is called, so that nothing is left half done."""
        if self._interrupts.asked.is_set():
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Wait; Ctrl-C ends it."""
        self._interrupts.asked.wait(seconds)
        self.check()

    def until(self, reached: Callable[[], bool], what: str, seconds: float = PATIENCE, look: float = LOOK) -> None:
        """Wait until it is reached; PartboxError, naming `what` was waited for, after so many seconds."""
        end = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > end:
                raise PartboxError(f"{what} took longer than {seconds:g} s: {self.failure() or 'nobody said why'}")
            self.pause(look)

    def fresh(self) -> None:
        """Begin with an empty schema."""
        drop(self.conn, self.schema)
        migrate(self.dsn, self.schema)
        self._loaded = 0

    def backlog(self, events: int) -> None:
        """Have a log of exactly so many unread records; one that is there already is used again."""
        if self._loaded != events:
            self.fresh()
            self.load(events)
        self.rewind()
        self._loaded = events

    def load(self, events: int) -> None:
        """Append records, as many publishers would have left them: committed, vacuumed and analyzed."""
        self._loaded = 0
        for first in range(1, events + 1, CHUNK):
            self.check()
            statements.load(self.conn, self.schema, first, min(first + CHUNK - 1, events))
        self.check()
        statements.vacuum(self.conn, self.schema)

    def clear(self) -> None:
        """Remove every record; ids go on from where they are."""
        self._loaded = 0
        statements.clear(self.conn, self.schema)

    def rewind(self, position: ReadPosition = BEGINNING) -> None:
        """Set every cursor to a position; nobody may own a partition."""
        statements.rewind(self.conn, self.schema, position)
