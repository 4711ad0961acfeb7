"""Reads the log: quickly for partitions that are caught up, in full for all while some are not, and by a poll of their
own for those just claimed.

While a few are behind, with a backlog that waits for handlers, the others go on quickly: in full all are read every
`IN_FULL` seconds if that brings much, and else every `LOOK_AGAIN`.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from partbox.db.delivery import idle_check, records
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.delivery.records import QuickPolled
from partbox.events.record import ID, PARTITION, delayed, left_out
from partbox.protocol import quick_poll as quick
from partbox.protocol.bell import Seen
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.worker.context import Context
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.poll_groups import PollGroups
from partbox.worker.engine.read_budget import ReadBudget
from partbox.worker.poller.full_poll import FullReader
from partbox.worker.poller.intake import Intake
from partbox.worker.poller.payload_fetch import Brought, Payloads
from partbox.worker.runners.dispatcher import Dispatcher

LOOK_AGAIN = 0.05  # on a backlog the newest fence serves for so many seconds, and little room is left alone as long
IN_FULL = 0.01
FOLLOW = 1.0  # seconds after which partitions of which nothing comes are moved to the page where the others are


class LogReader:
    """Reads what is new for the partitions of one process. The poller's thread only."""

    def __init__(self, context: Context, dispatcher: Dispatcher, intake: Intake, payloads: Payloads) -> None:
        settings = context.settings
        self._engine = context.engine
        self._intake = intake
        self._payloads = payloads
        self._schema = context.schema
        self.room = ReadBudget(settings.page, settings.window, settings.max_parked, settings.window_bytes)
        self._full = FullReader(context, dispatcher, intake, payloads, self.room)
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

    def rearrange(self) -> None:
        """Partitions may have come, gone or begun to drain, or their phase has changed."""
        self._groups: PollGroups | None = None

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
        groups = self._groups = self._groups or self._gather()
        self._engine.backlog = bool(groups.behind) or self.room.starved
        # A quick poll is of use to some, and nobody has just come.
        if groups.caught_up and not groups.fresh and self._full.calm and not self._is_turn_of_those_behind(groups):
            came = self._read_quickly(conn, groups, look)
            if came is not None:
                return came
        self.rearrange()
        self._read_at = time.monotonic()
        if groups.fresh:
            look = self._look(conn)
            request = self._full.request(self._horizon, groups.fresh, *self._full.rooms(groups.fresh), alone=True)
            self._full.read_on(conn, self._horizon, request)
        came = bool(groups.together) and self._read_together(conn, groups.together, look, goes_on)
        return came or bool(groups.fresh)

    def _read_quickly(self, conn: Connection[Any], groups: PollGroups, look: IdleCheck | None) -> bool | None:
        """True if anything came; None if all is to be read in full."""
        came = False
        if look is None or not self._horizon.still(look.fence.drawn, look.ended):
            page = self._poll_quickly(conn, groups)
            if page is None:
                return None
            came, look = page
        self._let_follow(groups)
        if not groups.behind:
            settled = self._horizon.shared is not None and self._horizon.shared.floor == look.fence.drawn
            self.seen = Seen(look.fence.drawn, settled, look.up)
        return came

    def _poll_quickly(self, conn: Connection[Any], groups: PollGroups) -> tuple[bool, IdleCheck] | None:
        """True if anything came, and the look that it is; None if the page does not count, and nothing has moved."""
        shared, horizon = self._horizon.shared, self._horizon
        assert shared is not None  # who is caught up has read it
        asked_at = time.monotonic()
        polled = records.quick(conn, self._schema, shared, groups.bits)
        if not quick.counts(len(polled.rows), polled.floor, polled.fence.drawn):
            return None
        brought = None
        if polled.rows and (brought := self._brought(conn, groups, polled)) is None:
            return None
        horizon.learn(polled.fence)  # read after the snapshot, as the ceiling was
        snapshot = Snapshot.parse(polled.snapshot)
        page = horizon.page_of(snapshot, whole=True)
        horizon.advance(snapshot, page)
        if brought is not None:
            self._full.tell(polled.rows, asked_at, polled.fence.drawn - polled.floor)
            self._intake.quick_page(groups.caught_up, page, brought)
        return brought is not None, IdleCheck(polled.fence, ended=False, up=polled.up)

    def _brought(self, conn: Connection[Any], groups: PollGroups, polled: QuickPolled) -> Brought | None:
        """A quick page with all of its payloads; None if there is no room for all of it."""
        rows, cap, clock = polled.rows, len(polled.rows), polled.clock
        self.room.learn(rows)
        ids: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            ids[row[PARTITION]].append(row[ID])
        with self._engine.lock:  # runners free room while it is counted
            fits = all(self._fits(groups.caught_up[number], its) for number, its in ids.items())
            if not fits or not self.room.takes(cap, self._engine.partitions.values()):
                return None
        large = [row for row in left_out(rows) if self._intake.needs(row, clock)]
        if not large:
            return Brought(rows, {}, {}, cap, clock, delayed(rows))
        with self._engine.lock:  # guards the payload bytes that partitions hold
            left = self.room.left(self._engine.partitions.values())
        brought = self._payloads.of_page(conn, rows, large, (), self.room.beside(cap, left), cap, clock)
        return brought if not brought.ends else None

    def _fits(self, partition: Partition, ids: list[int]) -> bool:
        return len(ids) - bisect_right(ids, partition.cursor.last_id) <= self.room.of_one(partition)

    def _gather(self) -> PollGroups:
        with self._engine.lock:  # partitions come and go with ownership; a phase changes with a save
            partitions = self._engine.partitions.values()
            groups = PollGroups([partition for partition in partitions if self._readable(partition)])
        shared = self._horizon.shared
        if groups.caught_up and shared is not None:
            for partition in groups.behind:
                partition.cursor.stay(shared)
        return groups

    def _is_turn_of_those_behind(self, groups: PollGroups) -> bool:
        """True if all are to be read in full, for those that are behind.

        At once, unless each of these has a backlog, which the window has no room for perhaps.
        """
        if not groups.behind or not all(each.cursor.full and each.cursor.until is None for each in groups.behind):
            return bool(groups.behind)
        now = time.monotonic()
        if now - self._weighed_at < IN_FULL:
            return False
        self._weighed_at = now
        rooms, _ = self._full.rooms(groups.together)
        with self._engine.lock:  # runners and saves free room while it is counted
            return now - self._read_at > LOOK_AGAIN or self.room.is_worth(groups.together, rooms, late=False)

    def _let_follow(self, groups: PollGroups) -> None:
        """A cursor that only moved with the others is saved now and then; and what is saved holds purge back."""
        now, shared = time.monotonic(), self._horizon.shared
        if shared is not None and shared is not self._followed and now - self._followed_at > FOLLOW:
            self._followed, self._followed_at = shared, now
            self._intake.follow(groups.caught_up.values(), shared)

    def _read_together(
        self, conn: Connection[Any], partitions: list[Partition], look: IdleCheck | None, goes_on: Callable[[], bool]
    ) -> bool:
        # Idle, this runs 25 times a second: the rooms of 256 partitions are only computed where they may matter.
        behind = sum(partition.cursor.full for partition in partitions)
        rooms, left = self._full.rooms(partitions) if behind else (None, 0)
        recent = time.monotonic() - self._looked_at < LOOK_AGAIN
        more = False
        if rooms is not None:
            with self._engine.lock:  # as above
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
