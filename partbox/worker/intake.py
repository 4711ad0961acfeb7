"""From a page to lanes: what a poll brought becomes events that wait for a handler, or parked rows."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

from partbox.db.blocking import Row
from partbox.db.parked import Stored
from partbox.events import DeliveredEvent
from partbox.rules.cursor import Ask, Reading
from partbox.rules.parking import ParkedRow, Verdict
from partbox.rules.progress import Page
from partbox.worker.dispatcher import Dispatcher
from partbox.worker.lane import Key, Lane
from partbox.worker.partition import Partition

_id = itemgetter(1)
READY = Verdict("ready", 0, None, True, None)


def take_page(
    dispatcher: Dispatcher, asked: Sequence[tuple[Partition, Ask]], page: Page, shared: Page | None, rows: list[Row]
) -> None:
    """Move every partition that was asked for to `page` and hand over what it brought."""
    by_partition: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[row[0]].append(row)
    for partition, ask in asked:
        with dispatcher.lock:
            if not partition.lost:
                _take(dispatcher, partition, ask, page, shared, by_partition.get(partition.number, []))


def _take(
    dispatcher: Dispatcher, partition: Partition, ask: Ask, page: Page, shared: Page | None, rows: list[Row]
) -> None:
    rows.sort(key=_id)
    ids = [row[1] for row in rows]
    late = bisect_right(ids, ask.last_id)
    reading = partition.cursor.read(ask, page, shared, ids[:late], ids[late:])
    if reading.piece:
        partition.progress.read_piece(reading.page, reading.late, reading.last)
    else:
        partition.progress.read(reading.page, reading.late, reading.new, reading.raised)
    if rows:
        _hand_over(dispatcher, partition, _kept(rows, reading))
    if reading.piece and partition.draining:
        dispatcher.touch(partition)


def _kept(rows: list[Row], reading: Reading) -> list[Row]:
    """All rows of a whole page; of a cut one what the piece holds."""
    return rows[: len(reading.late)] if reading.piece else rows


def _hand_over(dispatcher: Dispatcher, partition: Partition, rows: list[Row]) -> None:
    epoch, subscription, codecs = partition.epoch, dispatcher.subscription, dispatcher.codecs
    lanes, woken = partition.lanes, []
    plain = not (partition.ahead or partition.chains or partition.draining)
    for row in rows:
        event = DeliveredEvent(row, epoch, subscription, 1, codecs)
        if row[11] is not None or not plain:
            if _parked(partition, event):
                plain = plain and not partition.chains
                dispatcher.touch(partition)
                continue
        key: Key = (row[4], row[5]) if row[5] is not None else (None, row[1])
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = Lane(partition, key)
        lane.queue.append(event)
        if not lane.active:
            lane.active = True
            woken.append(lane)
    dispatcher.ready(woken)


def _parked(partition: Partition, event: DeliveredEvent) -> bool:
    """Whether the event is consumed by being parked: before, or now."""
    row = event._row
    if partition.consumed(row[1]):
        partition.progress.finish([(row[1], b"")], row[1])
    elif row[11] is not None:
        partition.schedule(event)
    elif partition.draining:
        partition.park(event, READY)
    else:
        chain = partition.chains.get((row[4], row[5])) if row[5] is not None else None
        if chain is None or chain.caught_up():
            return False
        partition.hold(event)
    return True


def take_chain(
    dispatcher: Dispatcher, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: dict[int, Row]
) -> None:
    """Queue the records of a blocked key's rows that may run; a row whose record is gone goes too. Lock held."""
    if key[0] is None or partition.stopping or not all(row.loaded for row in rows):
        return
    lane = partition.lanes.setdefault(key, Lane(partition, key))
    for row in rows:
        _queue(dispatcher, partition, lane, row, bodies)
    if lane.queue and not lane.active:
        dispatcher.ready([lane], due=True)
    elif not lane.queue and not lane.active:
        del partition.lanes[key]


def take_due(dispatcher: Dispatcher, partition: Partition, stored: Stored, bodies: dict[int, Row]) -> None:
    """Queue a parked row that blocks nothing and is due, or hold it where its key is blocked. Lock held."""
    row = ParkedRow(stored.record_id, stored.state, stored.attempts, False, loaded=True)  # type: ignore[arg-type]
    partition.taken[row.id] = row
    key: Key = (None, row.id) if stored.aggregate_id is None else (stored.aggregate_type, stored.aggregate_id)
    chain = partition.chains.get(key)
    if chain is not None and not chain.caught_up() and row.id in bodies:
        partition.hold(_event(dispatcher, partition, row, bodies[row.id]))
        dispatcher.touch(partition)
        return
    lane = partition.lanes.setdefault(key, Lane(partition, key))
    _queue(dispatcher, partition, lane, row, bodies)
    if lane.queue and not lane.active:
        dispatcher.ready([lane], due=True)
    elif not lane.queue and not lane.active:
        del partition.lanes[key]


def _queue(
    dispatcher: Dispatcher, partition: Partition, lane: Lane, row: ParkedRow, bodies: dict[int, Row]
) -> None:
    body = bodies.get(row.id)
    if body is not None:
        lane.queue.append(_event(dispatcher, partition, row, body))
        return
    if row.blocks:
        partition.chains[lane.key].remove(row)
        if not partition.chains[lane.key].rows:
            del partition.chains[lane.key]
    partition.delete(row, b"")
    dispatcher.touch(partition)


def _event(dispatcher: Dispatcher, partition: Partition, row: ParkedRow, body: Row) -> DeliveredEvent:
    return DeliveredEvent(
        body, partition.epoch, dispatcher.subscription, row.attempts + 1, dispatcher.codecs, parked=row
    )
