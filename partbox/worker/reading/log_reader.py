"""Reads the log: quickly for partitions that are caught up, in full for all while some are not, and by a poll of their
own for those just claimed.

While a few are behind, with a backlog that waits for handlers, the others go on quickly: in full all are read every
`IN_FULL` seconds if that brings much, and else every `LOOK_AGAIN`.
"""

import time
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from partbox.db.delivery import idle_check
from partbox.db.delivery.idle_check import IdleCheck
from partbox.observe import Observers
from partbox.protocol.bell import Seen
from partbox.protocol.horizon import Horizon, Page
from partbox.settings import Settings
from partbox.worker.delivering.dispatcher import Dispatcher
from partbox.worker.reading.company import Company
from partbox.worker.reading.full_reader import FullReader
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.payloads import Payloads
from partbox.worker.reading.quick_reader import QuickReader
from partbox.worker.reading.read_budget import ReadBudget
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition
from partbox.worker.state.phase import Phase

LOOK_AGAIN = 0.05  # on a backlog the newest fence serves for so many seconds, and little room is left alone as long
IN_FULL = 0.01
FOLLOW = 1.0  # seconds after which partitions of which nothing comes are moved to the page where the others are


class LogReader:
    """Reads what is new for the partitions of one process. The poller's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        dispatcher: Dispatcher,
        intake: Intake,
        payloads: Payloads,
        settings: Settings,
        observers: Observers,
    ) -> None:
        self._holdings = holdings
        self._intake = intake
        self._schema = settings.schema_name
        self.room = ReadBudget(settings.page, settings.window, settings.max_parked, settings.window_bytes)
        self._quick = QuickReader(holdings, intake, payloads, self.room, self._schema, observers)
        self._full = FullReader(holdings, dispatcher, intake, payloads, self.room, self._schema, observers)
        self.waits_for_saves = False  # all partitions have a backlog, and there is enough of it in memory
        self.seen: Seen | None = None  # by the last look, if all that may be read was read
        self.forget()

    def forget(self) -> None:
        """A new life of the server may have begun: nothing that is remembered of ids and transactions holds in it."""
        self._horizon = Horizon()
        self._looked_at = self._read_at = self._weighed_at = self._followed_at = 0.0
        self._full.forget()
        self._ticked: IdleCheck | None = None
        self._followed: Page | None = None
        self.rearrange()

    def claimed(self, floor: int) -> None:
        """A partition with this saved floor is read from here on."""
        self._horizon.claim(floor)
        self.rearrange()

    def bound(self, partitions: list[Partition]) -> int:
        """So many records of these may be in memory."""
        return self.room.bound(partitions)

    def rearrange(self) -> None:
        """Partitions may have come, gone or begun to drain, or their phase has changed."""
        self._company: Company | None = None

    def listed(self) -> list[int]:
        """The transactions whose end a look is to tell."""
        return self._horizon.listed()

    def looked(self, look: IdleCheck) -> None:
        """A tick has just looked: the next read need not."""
        self._horizon.learn(look.fence)
        self._looked_at = time.monotonic()
        self._ticked = look

    def read(self, conn: Connection[Any], goes_on: Callable[[], bool] = lambda: False) -> bool:
        """True if anything came. After a page of a backlog the next follows at once, as long as it `goes_on`."""
        self.waits_for_saves = False
        self.seen = None
        look, self._ticked = self._ticked, None
        if self.room.starved:
            self._full.rooms([])
        company = self._company = self._company or self._gather()
        self._holdings.backlog = bool(company.behind) or self.room.starved
        if company.reads_quickly and self._full.calm and not self._is_turn_of_those_behind(company):
            came = self._read_quickly(conn, company, look)
            if came is not None:
                return came
        self.rearrange()
        self._read_at = time.monotonic()
        return self._read_in_full(conn, company, look, goes_on)

    def _read_quickly(self, conn: Connection[Any], company: Company, look: IdleCheck | None) -> bool | None:
        """True if anything came; None if all is to be read in full."""
        came = False
        if look is None or not self._horizon.still(look.fence.drawn, look.ended):
            page = self._quick.read(conn, self._horizon, company)
            if page is None:
                return None
            came, look = page
        self._let_follow(company)
        if not company.behind:
            self.seen = Seen(look.fence.drawn, self._is_settled(look), look.up)
        return came

    def _is_settled(self, look: IdleCheck) -> bool:
        """True if no transaction is open that has drawn one of the ids drawn by then."""
        return self._horizon.shared is not None and self._horizon.shared.floor == look.fence.drawn

    def _gather(self) -> Company:
        with self._holdings.lock:
            partitions = self._holdings.partitions.values()
            company = Company([partition for partition in partitions if self._readable(partition)])
        shared = self._horizon.shared
        if company.caught_up and shared is not None:
            for partition in company.behind:
                partition.cursor.stay(shared)
        return company

    def _is_turn_of_those_behind(self, company: Company) -> bool:
        """True if all are to be read in full, for those that are behind.

        At once, unless each of these has a backlog, which the window has no room for perhaps.
        """
        if not company.behind or not all(each.cursor.full and each.cursor.until is None for each in company.behind):
            return bool(company.behind)
        now = time.monotonic()
        if now - self._weighed_at < IN_FULL:
            return False
        self._weighed_at = now
        rooms, _ = self._full.rooms(company.together)
        with self._holdings.lock:
            return now - self._read_at > LOOK_AGAIN or self.room.is_worth(company.together, rooms, late=False)

    def _let_follow(self, company: Company) -> None:
        """A cursor that only moved with the others is saved now and then; and what is saved holds purge back."""
        now, shared = time.monotonic(), self._horizon.shared
        if shared is not None and shared is not self._followed and now - self._followed_at > FOLLOW:
            self._followed, self._followed_at = shared, now
            self._intake.follow(company.caught_up.values(), shared)

    def _read_in_full(
        self, conn: Connection[Any], company: Company, look: IdleCheck | None, goes_on: Callable[[], bool]
    ) -> bool:
        fresh, together = company.fresh, company.together
        if fresh:
            look = self._look(conn)
            request = self._full.request(self._horizon, fresh, *self._full.rooms(fresh), alone=True)
            self._full.read_on(conn, self._horizon, request)
        return (self._read_together(conn, together, look, goes_on) if together else False) or bool(fresh)

    def _read_together(
        self, conn: Connection[Any], partitions: list[Partition], look: IdleCheck | None, goes_on: Callable[[], bool]
    ) -> bool:
        # Idle, this runs 25 times a second: the rooms of 256 partitions are only computed where they may matter.
        behind = sum(partition.cursor.full for partition in partitions)
        rooms, left = self._full.rooms(partitions) if behind else (None, 0)
        recent = time.monotonic() - self._looked_at < LOOK_AGAIN
        more = False
        if rooms is not None:
            with self._holdings.lock:
                more = self.room.is_worth(partitions, rooms, late=not recent)
        self.waits_for_saves = recent and not more and behind == len(partitions)
        if self.waits_for_saves:
            return False
        if not (more and recent):
            look = look or self._look(conn)
            lockstep = all(partition.cursor.lockstep for partition in partitions)
            if lockstep and not more and self._horizon.still(look.fence.drawn, look.ended):
                return False
        if rooms is None:
            rooms, left = self._full.rooms(partitions)
        request = self._full.request(self._horizon, partitions, rooms, left, alone=False)
        return self._full.read_on(conn, self._horizon, request, goes_on)

    def _look(self, conn: Connection[Any]) -> IdleCheck:
        """An idle check. It is a fence too, so the last step to "settled" needs no other traffic."""
        look = idle_check.run(conn, self._schema, self._horizon.listed())
        self._horizon.learn(look.fence)
        self._looked_at = time.monotonic()
        return look

    def _readable(self, partition: Partition) -> bool:
        """Not while it is draining, but for the rest of a cut page; not before its time has come.

        A cut page goes on when there are bytes for its next piece.
        """
        phase = partition.phase
        if phase is Phase.LOST or not partition.may_begin():
            return False
        if partition.cursor.until is None:
            return phase is not Phase.DRAINING
        return phase is Phase.DRAINING or not self.room.starved
