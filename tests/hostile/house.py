"""A room with guests that do what nobody should, among neighbours that only want their events: who notices what?

Neighbours are aggregates with ordinary events. They publish before the guests, with them and after them, and each of
their events must come once and in order, whatever a guest does. After each guest's own event comes an ordinary one of
its aggregate, which may neither pass it nor be lost.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Final

import psycopg
from variants import named
from waiting import eventually

from partbox import Event, Outbox
from partbox.doctor.doctor import Report, examine_outbox
from partbox.doctor.limits import Limits
from partbox.events import DeliveredEvent
from partbox.supervisor.embedded import EmbeddedWorker

DONE: Final = "done"
"""At its first attempt."""
RETRIED: Final = "retried"
"""Done at a later attempt, after as many as failed."""
LATER: Final = "later"
"""Done at a second call, without a charge."""
DEAD: Final = "dead"
OPEN: Final = "open"
"""Not finished, and shown by doctor, while its aggregate waits."""

NEIGHBOURS: Final = tuple(f"neighbour-{number}" for number in range(8))
ROUND: Final = 3  # events of each neighbour in a round
ATTEMPTS: Final = 3  # of an event, unless a house says otherwise
HURRY: Final = 0.2  # seconds between two looks at what waits for its time

HASTEN: Final = """
with mine as (select subscription, partition from partbox.partition order by subscription, partition for no key update),
     due as (update partbox.parked k set due_at = clock_timestamp() from (select count(*) from mine) m
              where k.due_at > clock_timestamp() returning k.partition)
update partbox.partition p set parked_version = parked_version + 1 from (select distinct partition from due) d
 where d.partition = p.partition
"""

Key = tuple[str, int]


@dataclass(slots=True)
class Guest:
    """One that misbehaves at its event, and how that is to end, None = somehow; `shown`: the check of doctor that shows
    it."""

    name: str
    ending: str | None
    shown: str | None = None
    attempts: list[int] = field(default_factory=list)


class WorkerEndedError(Exception):
    """The worker has ended, which it never may: there is no use in waiting."""


class House:
    """An outbox on a test's database: invite guests, then `live`."""

    def __init__(self, dsn: str, *, concurrency: int = 4, source: Any = None, **settings: Any) -> None:
        self.dsn = dsn
        self.outbox = Outbox(source or dsn, **{"retry": "fixed:0.05", "max_attempts": ATTEMPTS, **settings})
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.guests: list[Guest] = []
        self.calls: list[Key] = []  # of ordinary events, in the order of their starts
        self.report: Report | None = None
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._published: dict[str, int] = {}
        self.outbox.register(self.note, "Ordinary", name="ordinary")

    # Who comes.

    def invite(
        self,
        name: str,
        handler: Callable[[DeliveredEvent], Any],
        ending: str | None = RETRIED,
        shown: str | None = None,
        *,
        batch: bool = False,
        **options: Any,
    ) -> Guest:
        """A guest whose event `handler` gets, alone or in a list."""
        guest = Guest(name, ending, shown)
        register = self.outbox.on_batch if batch else self.outbox.on
        register(name, name=f"of {name}", **options)(_noted(guest, handler, bool(options.get("transactional"))))
        self.guests.append(guest)
        return guest

    def note(self, event: DeliveredEvent) -> None:
        """The handler of ordinary events."""
        with self._lock:
            self.calls.append((str(event.aggregate_id), event.payload))

    # What is published.

    def round(self, events: int = ROUND) -> None:
        """So many events of each neighbour, each in one transaction with those of the others."""
        for _ in range(events):
            self.publish([self.ordinary(name) for name in NEIGHBOURS])

    def enter(self, guests: Sequence[Guest]) -> None:
        """Each guest's event and an ordinary one behind it."""
        self.publish([event for guest in guests for event in (self.hostile(guest), self.ordinary(guest.name))])

    def ordinary(self, aggregate_id: str) -> Event:
        number = self._published[aggregate_id] = self._published.get(aggregate_id, 0) + 1
        return Event("Ordinary", number, aggregate_type="Guest", aggregate_id=aggregate_id)

    def hostile(self, guest: Guest) -> Event:
        return Event(guest.name, {"whose": guest.name}, aggregate_type="Guest", aggregate_id=guest.name)

    def publish(self, events: Sequence[Event]) -> None:
        with self.conn.transaction():
            self.outbox.publish_many(self.conn, events)

    # What happens.

    def live(self, *, until: Callable[[], bool] = lambda: True, timeout: float = 30.0) -> None:
        """Deliver everything with a worker of this process, which works until then, and judge."""
        with self.working() as worker:
            self.round()
            self.enter(self.guests)
            self.round()
            self.settle(worker, timeout, until)
            self.round()
            self.settle(worker, timeout)
            self.look()
        self.judge()

    def live_in_turn(self, together: int = 1, *, timeout: float = 30.0) -> None:
        """As `live`, but of the guests so many come together, and the next when the events of those are settled."""
        waiting, self.guests = self.guests, []
        with self.working() as worker:
            self.round()
            for at in range(0, len(waiting), together):
                coming = waiting[at : at + together]
                self.guests += coming
                with named(coming[0].name):
                    self.enter(coming)
                    self.round(1)
                    self.settle(worker, timeout)
            self.round()
            self.settle(worker, timeout)
            self.look()
        self.judge()

    @contextmanager
    def working(self) -> Iterator[EmbeddedWorker]:
        worker = self.outbox.worker(concurrency=self._concurrency)
        with worker:
            yield worker
        assert self.conn.execute("select count(*) from partbox.instance").fetchone() == (0,), "it did not leave"

    def settle(self, worker: EmbeddedWorker, timeout: float = 30.0, until: Callable[[], bool] = lambda: True) -> None:
        """Wait until all is quiet, at most `timeout` seconds in which nothing goes on."""
        eventually(lambda: self.quiet(worker) and until(), timeout, HURRY / 4, moves=self.progress)

    def progress(self) -> object:
        """A mark that moves while anything goes on, from the claim of the partitions to the guests' last attempts."""
        owned = self.conn.execute("select count(owner) from partbox.partition").fetchone()
        with self._lock:
            had = len(set(self.calls))
        return owned, had, [min(len(guest.attempts), ATTEMPTS) for guest in self.guests]

    def quiet(self, worker: EmbeddedWorker | None = None) -> bool:
        """True if everything is delivered that can be; events that wait for their time are hastened."""
        if worker is not None and (failure := worker._worker.failure) is not None:
            raise WorkerEndedError(f"the worker has ended of a {type(failure).__name__}")
        self.conn.execute(HASTEN)
        missing = self.missing()
        assert not missing, f"not delivered: {missing[:10]}"
        status = self._status()
        unsettled = [(guest.name, guest.attempts) for guest in self.guests if not _settled(guest, status)]
        assert not unsettled, f"not ended: {unsettled}"
        return True

    def look(self) -> None:
        """Ask doctor for its report."""
        self.report = examine_outbox(lambda: self.dsn, self.outbox.settings, Limits(), wait=lambda seconds: None)

    def missing(self) -> list[Key]:
        """Ordinary events that nobody has had; those behind an event that stays open are to wait."""
        waiting = {guest.name for guest in self.guests if guest.ending == OPEN}
        with self._lock:
            had = set(self.calls)
        return [
            (name, number)
            for name, last in self._published.items()
            if name not in waiting
            for number in range(1, last + 1)
            if (name, number) not in had
        ]

    # What came of it.

    def judge(self) -> None:
        """Nothing lost, reordered or repeated; each guest ended as it should; doctor showed what stalls."""
        assert not self.missing()
        repeated = [key for key, count in Counter(self.calls).items() if count > 1]
        assert not repeated, f"repeated: {repeated}"
        for name in self._published:
            numbers = [number for aggregate, number in self.calls if aggregate == name]
            assert numbers == sorted(numbers), f"{name} out of order: {numbers}"
        for guest in self.guests:
            self._judge(guest)
        self._judge_report()

    def state(self, name: str) -> str | None:
        """Of the guest's event, as parked; None if it is not."""
        row = self.conn.execute("select state from partbox.parked where event_type = %s", [name]).fetchone()
        return row[0] if row else None

    def attempts(self, name: str) -> int | None:
        """Attempts charged to the guest's event, as parked."""
        row = self.conn.execute("select attempts from partbox.parked where event_type = %s", [name]).fetchone()
        return row[0] if row else None

    def _status(self) -> dict[str, str]:
        """The state of each guest's event as of now."""
        names = [guest.name for guest in self.guests]
        asked = "select event_type, status from partbox.record_status where event_type = any(%s)"
        return dict(self.conn.execute(asked, [names]).fetchall())

    def _judge(self, guest: Guest) -> None:
        if guest.ending == DONE:
            assert guest.attempts == [1], (guest.name, guest.attempts)
        elif guest.ending == RETRIED:
            tried = guest.attempts
            assert len(tried) > 1, (guest.name, tried)
            assert tried == list(range(1, len(tried) + 1)), (guest.name, tried)
        elif guest.ending == LATER:
            assert guest.attempts == [1, 1], (guest.name, guest.attempts)
        elif guest.ending == DEAD:
            assert self.state(guest.name) == "dead", guest.name

    def _judge_report(self) -> None:
        assert self.report is not None
        causes = {finding.cause for finding in self.report.findings}
        for guest in self.guests:
            expected = "dead" if guest.ending == DEAD else guest.shown
            if expected is not None and not (expected == "dead" and "dead-flood" in causes):
                assert expected in causes, f"doctor does not show {guest.name}: {causes}"
        if not any(guest.shown for guest in self.guests) and "dead-flood" not in causes:
            assert self.report.healthy, self.report.findings

    def close(self) -> None:
        self.conn.close()


def _settled(guest: Guest, status: Mapping[str, str]) -> bool:
    if guest.ending == OPEN:
        return bool(guest.attempts)
    if guest.ending is None:
        return status.get(guest.name) in ("dead", "done")
    return status.get(guest.name) == ("dead" if guest.ending == DEAD else "done")


def _noted(guest: Guest, handler: Callable[..., Any], transactional: bool) -> Callable[..., Any]:
    """The handler, with its attempts noted."""

    def note(given: Any) -> None:
        guest.attempts.append(given[0].attempt if isinstance(given, list) else given.attempt)

    def handle(given: Any) -> Any:
        note(given)
        return handler(given)

    def handle_in_transaction(given: Any, conn: Any) -> Any:
        note(given)
        return handler(given, conn)

    async def handle_async(given: Any) -> Any:
        note(given)
        return await handler(given)

    if transactional:
        return handle_in_transaction
    return handle_async if iscoroutinefunction(handler) else handle
