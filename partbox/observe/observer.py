"""What can be observed: one class of no-op hooks, named in the order of an event's life.

Metrics and traces are such observers; an application adds its own by `outbox.observe(…)`. Nothing that is not observed
costs anything: of each observer only those hooks are called that its class overrides.

A hook is called in the middle of somebody's work, from any thread of a process: it must be quick, must not block, and
must not use the outbox. What it raises is logged and changes nothing. Each worker process has a copy of its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from partbox.events import DeliveredEvent, Event
from partbox.rules.parking import Verdict

QUICK = 0.001  # seconds: of a handler that runs so long its very time is told


@dataclass(frozen=True, slots=True)
class Started:
    """A worker that begins: the names of its handlers, how many run at once, how many records may be in memory."""

    subscription: str
    handlers: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Turn:
    """`count` events that one handler has delivered in a row, on one thread or task.

    `seconds`: how long it ran for all of them; `slow`: how long for each of those that took at least `QUICK`.
    `oldest`, `newest`: Unix seconds at which the first and the last were published; `ended`: when the last was done.
    """

    handler: str
    count: int
    seconds: float
    slow: Sequence[float]
    oldest: float
    newest: float
    ended: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker has in memory: records read and not yet passed by a saved cursor, of at most `window`; lanes that
    wait or run; handlers that run; partitions owned."""

    records: int
    window: int
    lanes: int
    running: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of one sending of `messages` by a sink, after `seconds`.

    The broker has `acknowledged` so many, `refused` so many for good; `retried` are to be sent again, `error` being the
    last reason. What remains was neither: the worker stopped first.
    """

    messages: int
    acknowledged: int
    refused: int
    retried: int
    seconds: float
    error: BaseException | None


class Observer:
    """Override what you want to hear. Times are in seconds; `handler` is the handler's name."""

    def publishing(self, events: Sequence[Event]) -> AbstractContextManager[Mapping[str, str] | None] | None:
        """Around the writing of a batch, in the publisher's thread or task, after its `before_publish` hooks; it may
        yield headers that every event of the batch gets, where it has none of that name. In the publishing application.
        """
        return None

    def published(self, events: Sequence[Event]) -> None:
        """These were written in a transaction that is still open. In the publishing application."""

    def started(self, worker: Started) -> None:
        """This process begins to deliver. Called once, before everything else here."""

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        """This process owns the partition now; `pause`: since its last owner released it, None if none did."""

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        """A poll that took `seconds` brought these records, by partition and id; told before they are handed over.
        Some may be known as parked or finished already. `late_ids`: the length of the longest range of ids in which it
        looked for records that committed late. A poll that brings nothing is not told."""

    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> AbstractContextManager[object] | None:
        """Around each call of a handler, in its thread or task; an exception of the handler passes through it. More
        than one event only for a batch handler. Overriding it takes the fast way from every event."""
        return None

    def sending(self, handler: str, messages: int) -> None:
        """A sink hands so many messages to its broker and waits for the answer; in the event loop's thread."""

    def answered(self, handler: str, answer: Answer) -> None:
        """The broker has answered what `sending` told of, or the sink has given up waiting."""

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        """What became of an event that `handling` was about, or that an open circuit refused; None: it is done. After
        `handling`, for each event of a list; not where its partition was lost, where it failed while that was read
        anew, nor after a timeout that nothing could end. Overriding it takes the fast way from every event."""

    def delivered(self, turn: Turn) -> None:
        """These events are done."""

    def parked(
        self,
        event: DeliveredEvent,
        handler: str,
        verdict: Verdict,
        error: BaseException | None,
        seconds: float | None,
    ) -> None:
        """The event did not succeed: `verdict` says its state (dead, retrying, deferred), attempts, delay and error;
        `error` is what the handler raised, if it did; `seconds` how long it ran, None if it was not called.
        `verdict.attempts == event.attempt` where an attempt was charged. What only waits behind such a one is not told.
        """

    def circuit(self, handler: str, is_open: bool) -> None:
        """The handler's downstream counts as out of order, or as healthy again, in this process."""

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        """The cursors of so many partitions were saved, and so many records parked in each state, those that only wait
        behind another included; `seconds` on the server."""

    def refused(self, partitions: int) -> None:
        """The fence has refused a write about so many partitions: others own them."""

    def released(self, partition: int) -> None:
        """This process has given the partition up, with nothing left open."""

    def forgotten(self, partition: int) -> None:
        """The connection was lost: what was read of the partition and is not finished will be read again."""

    def lost(self, partition: int) -> None:
        """The partition was taken, after its lease was over: what was not saved is delivered again elsewhere."""

    def loaded(self, load: Load) -> None:
        """What this process has in memory; four times a second."""

    def planned(self, moved: int) -> None:
        """This node's supervisor has planned that so many partitions move to other processes."""

    def buried(self, instances: int) -> None:
        """This node's supervisor has buried so many dead processes, of whatever node."""
