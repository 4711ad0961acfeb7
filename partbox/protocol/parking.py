"""Parked rows of a key, and the choice of the one that may run next.

A key is blocked while it has blocking rows. Of those only the smallest id may run: `held` and `ready` at once, others
when due, `dead` never. Records polled for a blocked key are parked `held` behind them.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from partbox.protocol.verdict import State

AT_ONCE = ("held", "ready")
CHAIN = 100
OPEN = ("retrying", "deferred", "held", "ready")


@dataclass(slots=True)
class ParkedRow:
    """A parked row in memory. `due` is monotonic seconds, None for at once; uncommitted rows may not run.

    A `suspect` row may have killed a process, and is charged before it runs; `accused` ones were running then.
    `charged`: it has its turn, until it is done, parked anew or handed back.
    """

    id: int
    state: State
    attempts: int
    blocks: bool
    due: float | None = None
    committed: bool = True
    loaded: bool = False
    suspect: bool = False
    accused: bool = False
    charged: bool = False

    def may_run(self, now: float) -> bool:
        if not self.committed or self.loaded or self.state == "dead":
            return False
        return self.state in AT_ONCE or (self.due is not None and self.due <= now)


@dataclass(slots=True)
class Chain:
    """The blocking rows of one key, in id order."""

    rows: list[ParkedRow] = field(default_factory=list)
    stuck: bool = False  # the head is running, and held up its partition for too long

    def __iter__(self) -> Iterator[ParkedRow]:
        return iter(self.rows)

    def insert(self, row: ParkedRow) -> None:
        if not self.rows or row.id > self.rows[-1].id:
            self.rows.append(row)
        else:
            insort(self.rows, row, key=lambda each: each.id)

    def runnable(self, now: float) -> list[ParkedRow]:
        """The head and what may follow it without waiting, at most `CHAIN` rows; nothing while the head is loaded.

        A suspect runs by itself: what follows it is charged when its turn has come.
        """
        run: list[ParkedRow] = []
        for row in self.rows:
            if len(run) == CHAIN or not row.may_run(now) or (run and (row.suspect or run[0].suspect)):
                break
            run.append(row)
        return run

    def wakes_at(self) -> float | None:
        """The time at which the head may run: 0.0 at once, monotonic seconds, or None (loaded, uncommitted or dead)."""
        if not self.rows:
            return None
        head = self.rows[0]
        if not head.committed or head.loaded or head.state == "dead":
            return None
        return 0.0 if head.state in AT_ONCE else head.due

    def before(self, record_id: int) -> Iterator[ParkedRow]:
        return takewhile(lambda row: row.id < record_id, self.rows)

    def in_line(self, rows: Sequence[ParkedRow]) -> list[ParkedRow]:
        """Those of these rows, which are loaded, before which nothing of the chain waits."""
        waits = next((row.id for row in self.rows if not row.loaded), None)
        return [row for row in rows if waits is None or row.id < waits]

    def caught_up(self) -> bool:
        """True if every row is loaded: events that come now may queue behind them in memory."""
        return not self.stuck and all(row.loaded for row in self.rows)
