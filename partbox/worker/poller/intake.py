"""From a page to lanes: what a poll brought becomes events that wait for a handler, or parked rows."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from partbox.codecs import Codecs
from partbox.db.blocking import Row
from partbox.events import Claim, DeliveredEvent
from partbox.events.record import (
    AGGREGATE,
    AGGREGATE_ID,
    AVAILABLE_AT,
    EVENT_TYPE,
    ID,
    PARTITION,
    ROUTE,
    lacks_names,
    microseconds,
    size,
)
from partbox.protocol.cursor import Ask, Reading
from partbox.protocol.horizon import Page
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import Stored
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.key import Key, key_of, keyed
from partbox.worker.engine.partition import DeadLetterLane, Lane, Partition
from partbox.worker.engine.read_budget import OVERHEAD
from partbox.worker.engine.save import READY
from partbox.worker.poller.payload_fetch import Brought
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.dispatcher import Dispatcher
from partbox.worker.runners.endpoint import Kind

PORTION = 16
"""Partitions for which the lock is taken once: who takes it for each of 256 meets the runner's wish for it as often."""

_id, _available_at = itemgetter(ID), itemgetter(AVAILABLE_AT)

T = TypeVar("T")


class Share(NamedTuple):
    """The rows of one partition in a page, and their ids."""

    rows: list[Row]
    ids: list[int]


class Arrived(NamedTuple):
    """A partition that a page has moved, and its rows, which are not handed over yet."""

    partition: Partition
    reading: Reading
    rows: list[Row]


class Intake:
    """Takes what the poller read. `wanted` are the event types that the subscription takes; None: all."""

    def __init__(self, context: Context, dispatcher: Dispatcher, codecs: Codecs, reports: Reports) -> None:
        self._engine = context.engine
        self._dispatcher = dispatcher
        self._routes = context.routes
        self._transactional = any(endpoint.kind is Kind.TRANSACTIONAL for endpoint in context.routes.all())
        self._codecs = codecs
        self._subscription = context.subscription
        self._reports = reports
        self.wanted: frozenset[str] | None = None

    def page(
        self, asked: Sequence[tuple[Partition, Ask, int]], page: Page, brought: Brought, *, together: bool
    ) -> list[Arrived]:
        """Move every partition that was asked for to `page`; what is to be handed over then, with `hand_over`.

        With each comes the floor of its late search. `together`: those in lockstep share the page.
        """
        shares, moved = _shares(brought.rows), list[Arrived]()
        for some in _portions(asked):
            with self._engine.lock:  # cursor and progress move as one: a save between them would pass what no lane has
                for partition, ask, floor in some:
                    if not partition.lost:
                        share = shares.get(partition.number) or Share([], [])
                        one = self._move(partition, ask, page, floor, share, brought, together=together)
                        if one.reading.piece or partition.draining:  # it may be released, with all that it has in hand
                            self._hand_over_moved(one, brought)
                        else:
                            moved.append(one)
        return moved

    def hand_over(self, moved: Sequence[Arrived], brought: Brought) -> None:
        """Hand over what `page` has brought, before the next page moves anything."""
        for some in _portions(moved):
            with self._engine.lock:  # rows become events or parked rows, never neither
                for each in some:
                    if not each.partition.lost:
                        self._hand_over_moved(each, brought)

    def quick_page(self, caught_up: Mapping[int, Partition], page: Page, brought: Brought) -> None:
        """Move those of these partitions to `page` of which it brought something; the others need not be touched."""
        for number, share in _shares(brought.rows).items():
            partition = caught_up[number]
            with self._engine.lock:  # as in `page`
                if not partition.lost:
                    self._follow(partition, page, share, brought)

    def follow(self, partitions: Iterable[Partition], page: Page) -> None:
        """Let these, which are caught up, be at `page`: it has brought nothing of theirs."""
        for partition in partitions:
            with self._engine.lock:  # as in `page`
                if not partition.lost:
                    self._follow(partition, page, Share([], []), None)

    def needs(self, row: Row, clock: int) -> bool:
        """True if what was left out of a record is needed: its names always, else if a handler may get it now, for its
        time has come, and its type is wanted."""
        if lacks_names(row):
            return True
        return not _waits(row[AVAILABLE_AT], clock) and (self.wanted is None or row[EVENT_TYPE] in self.wanted)

    def chain(self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row]) -> None:
        """Queue the records of a blocked key's rows that may run; a row whose record is gone goes too. Lock held.

        While their bodies were asked for, something of their key that ran may have failed, or been put back.
        """
        chain, lane = partition.parked.chains.get(key), partition.lanes.get(key)
        if chain is not None:
            if lane is not None and any(each.id > rows[0].id for each in list(lane.queue)):
                lane.hold_rest()
                self._engine.touch(partition)
            in_line = chain.in_line(rows)
            if len(in_line) < len(rows):
                self._engine.unload(partition, key, list(rows[len(in_line) :]))
            rows = in_line
        if rows and not partition.stopping:
            self._queue(partition, key, rows, bodies)

    def due(self, partition: Partition, stored: Stored, row: ParkedRow, bodies: Mapping[int, Row]) -> None:
        """Queue a parked row that blocks nothing and is due, or hold it where its key is blocked. Lock held."""
        partition.parked.taken[row.id] = row
        if row.state is RowState.DEAD:
            self._letter(partition, stored, row, bodies.get(row.id))
            return
        key: Key = (None, row.id) if stored.aggregate_id is None else keyed(stored.aggregate_type, stored.aggregate_id)
        chain = partition.parked.chains.get(key)
        uncharged = row.suspect and not row.charged  # its key was blocked a moment ago
        if row.id not in bodies or not (uncharged or (chain is not None and not chain.caught_up())):
            self._queue(partition, key, [row], bodies)
        else:
            partition.parked.hold(self._event(partition, bodies[row.id], row))
            self._engine.touch(partition)

    def dead(self, partition: Partition, row: ParkedRow, body: Row) -> tuple[DeliveredEvent, Verdict]:
        """A parked row that killed its process so often that it does not run again; to be told. Lock held."""
        event = self._event(partition, body, row)
        verdict = self._routes[body[ROUTE]].perished(row.attempts)
        partition.parked.park(event, verdict)
        self._engine.touch(partition)
        self._engine.wake(partition, key_of(event))
        return event, verdict

    def tell(self, buried: Sequence[tuple[DeliveredEvent, Verdict]]) -> None:
        """Tell of these dead ones. Without the lock."""
        for event, verdict in buried:
            self._reports.parked(event, verdict)

    def hold_behind(self, partition: Partition, keys: Sequence[Key]) -> None:
        """Hold what waits in memory for its turn, and now has a row before it that must run first. Lock held."""
        for key in keys:
            lane, chain = partition.lanes.get(key), partition.parked.chains.get(key)
            if lane is not None and chain is not None and lane.queue and not chain.caught_up():
                lane.hold_rest()
                self._engine.touch(partition)

    def _move(
        self, partition: Partition, ask: Ask, page: Page, floor: int, share: Share, brought: Brought, *, together: bool
    ) -> Arrived:
        rows, ids = _in_order(share)
        late = bisect_right(ids, ask.last_id)
        kept = late + min(ask.room, _whole(partition, ids, late, brought))
        new, rows = ids[late:kept], rows[:kept]
        cap = min(kept, brought.cap) if partition.number in brought.ends else brought.cap
        if partition.number in brought.ends or partition.number in brought.cut:
            ask = ask._replace(room=len(new))
        reading = partition.cursor.take(ask, page, floor, ids[:late], new, together=together, cap=cap)
        if reading.piece:
            partition.progress.take_piece(reading.page, reading.late, reading.last)
            rows = rows[: len(reading.late)]
        else:
            partition.progress.take_page(reading.page, reading.late, reading.new, reading.raised)
        return Arrived(partition, reading, rows)

    def _hand_over_moved(self, moved: Arrived, brought: Brought) -> None:
        partition, reading, rows = moved
        had_ahead = bool(partition.parked.ahead)
        if rows:
            self._hand_over(partition, rows, len(reading.late), brought)
        if reading.piece:
            # Only after the last piece may a cursor be saved that passes what came with the earlier ones.
            if partition.draining or (reading.last and partition.progress.count_finished()):
                self._engine.touch(partition)
            return
        if not partition.cursor.full:
            partition.suspects.left = 0
        if had_ahead:
            self._forget_ahead(partition)

    def _follow(self, partition: Partition, page: Page, share: Share, brought: Brought | None) -> None:
        rows, ids = share
        reading = partition.cursor.take_quick(page, ids)
        partition.progress.take_page(reading.page, reading.late, reading.new, reading.raised)
        if partition.narrow is not None:
            partition.widen()
        if brought is not None:
            self._hand_over(partition, rows, len(reading.late), brought)

    def _hand_over(self, partition: Partition, rows: list[Row], late: int, brought: Brought) -> None:
        """The records of one partition, the first `late` of them late ones; sizes of large ones are noted."""
        large = brought.large.get(partition.number, {})
        there = [(row[ID], large[row[ID]]) for row in rows if row[ID] in large] if large else []
        for id, bytes in there:
            partition.weight.add(id, bytes)
        self._queue_new(partition, rows, late, brought, large=bool(there))
        partition.weight.drop(id for id, _ in there if partition.progress.has_finished(id))

    def _queue_new(self, partition: Partition, rows: list[Row], late: int, brought: Brought, *, large: bool) -> None:
        parked = partition.parked
        last_late = rows[late - 1][ID] if late and self._transactional else 0
        plain = not (
            parked.ahead
            or parked.chains
            or partition.draining
            or partition.suspects.left
            or last_late
            or self.wanted is not None
            or (rows and rows[0][ID] <= partition.resumption.done_to)
        )
        delayed = brought.delayed and any(map(_available_at, rows))
        if plain and self._dispatcher.lone and partition.lined_up and not delayed:
            # Nothing is known of these records, and one runner runs them all: they need no lanes to keep their order.
            line = partition.line
            line.claim = self._claim(partition)
            line.queue.extend(rows)
            if not line.active:
                self._dispatcher.ready([line])
        else:
            self._sort(partition, rows, last_late, brought.clock, plain=plain, large=large)

    def _sort(
        self, partition: Partition, rows: list[Row], last_late: int, clock: int, *, plain: bool, large: bool
    ) -> None:
        """Each into the lane of its key, unless it is not to be handed over now. `large`: names may be long."""
        claim, lanes, parked, woken = self._claim(partition), partition.lanes, partition.parked, []
        for row in rows:
            event = DeliveredEvent(row, claim)
            if (row[AVAILABLE_AT] is not None or not plain) and self._consumed(partition, event, last_late, clock):
                plain = plain and not parked.chains
                continue
            key: Key = row[AGGREGATE] if row[AGGREGATE_ID] is not None else (None, row[ID])
            if large:
                key = key_of(event)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = Lane(partition, key)
            lane.queue.append(event)
            if not lane.active:
                lane.active = True
                woken.append(lane)
        self._dispatcher.ready(woken)

    def _forget_ahead(self, partition: Partition) -> None:
        """All up to the last id was read: what was not met had been passed. After all, the rest has no record more."""
        last_id = partition.cursor.last_id if partition.cursor.full else float("inf")
        partition.parked.ahead = {id for id in partition.parked.ahead if id > last_id}
        for key in partition.parked.chains:
            self._engine.wake(partition, key)

    def _consumed(self, partition: Partition, event: DeliveredEvent, last_late: int, clock: int) -> bool:
        """True if the event is not to be handed over, being unwanted, known or early; it is finished or parked then."""
        parked, remembered = partition.parked, partition.resumption.remembered
        chain = parked.chains.get(key_of(event))
        if parked.meet(event.id):
            partition.progress.finish([(event.id, b"")])
        elif event.identity in remembered:
            remembered.discard(event.identity)
            partition.progress.finish([event.identity])
        elif self.wanted is not None and event.event_type not in self.wanted:
            partition.progress.finish([event.identity])
        elif _waits(event.record[AVAILABLE_AT], clock):
            parked.schedule(event)
        elif partition.draining:
            parked.park(event, READY)
        elif partition.suspects.include(event.id):
            parked.suspect(event)
        elif event.id <= last_late:  # of any handler: a transaction waits until no late record is unfinished
            parked.park(event, READY)
        elif chain is not None and not chain.caught_up():
            parked.hold(event)
        else:
            return False
        self._engine.touch(partition)
        return True

    def _letter(self, partition: Partition, stored: Stored, row: ParkedRow, body: Row | None) -> None:
        """A lane of its own for a dead event, which the hook is to get; without its record there is nothing to give."""
        if body is None:
            partition.parked.delete(row, b"")
            self._engine.touch(partition)
            return
        event = DeliveredEvent(body, self._claim(partition), row.attempts, parked=row)
        partition.weight.add(row.id, OVERHEAD + size(body))
        self._dispatcher.ready([DeadLetterLane(partition, event, stored.error or "")], due=True)

    def _queue(self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row]) -> None:
        lane = partition.lanes.get(key) or Lane(partition, key)
        for row in rows:
            body = bodies.get(row.id)
            if body is None:
                partition.parked.vanished(row, key)
                self._engine.touch(partition)
            else:
                lane.queue.append(self._event(partition, body, row))
                partition.weight.add(row.id, OVERHEAD + size(body))
        if not lane.queue:
            self._engine.wake(partition, key)
        elif not lane.active:
            partition.lanes[key] = lane
            self._dispatcher.ready([lane], due=True)

    def _event(self, partition: Partition, body: Row, row: ParkedRow) -> DeliveredEvent:
        # The charge is the attempt.
        attempt = row.attempts + (not row.charged)
        return DeliveredEvent(body, self._claim(partition), attempt, parked=row)

    def _claim(self, partition: Partition) -> Claim:
        return Claim(partition.epoch, self._subscription, self._codecs)


def _portions(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """So many at a time as may be moved without letting others have the lock."""
    return (several[at : at + PORTION] for at in range(0, len(several), PORTION))


def _waits(available_at: bytes | None, clock: int) -> bool:
    """True if the time of a record had not come by this clock (microseconds since 2000)."""
    return available_at is not None and microseconds(available_at) > clock


def _whole(partition: Partition, ids: list[int], late: int, brought: Brought) -> int:
    """The number of new ids up to the first record that was left out, below 0 if it is a late one: what follows was not
    asked for, as it were. The partition's next page is narrower then, and wider otherwise."""
    end = brought.ends.get(partition.number)
    if end is None:
        if partition.narrow is not None:
            partition.widen()
        return len(ids) - late
    whole = bisect_left(ids, end) - late
    partition.narrow = 2 * max(0, whole) + 1
    return whole


def _shares(rows: Sequence[Row]) -> dict[int, Share]:
    """The rows of a page by partition.

    Each is looked at once, in the order in which they were made: in the order of partitions each look goes to memory.
    """
    shares: dict[int, Share] = {}
    for row in rows:
        number = row[PARTITION]
        share = shares.get(number)
        if share is None:
            share = shares[number] = Share([], [])
        share[0].append(row)
        share[1].append(row[ID])
    return shares


def _in_order(share: Share) -> Share:
    """The same by id: late ones come first, and both kinds in order."""
    rows, ids = share
    ordered = sorted(ids)
    return share if ids == ordered else Share(sorted(rows, key=_id), ordered)
