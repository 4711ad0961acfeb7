"""The observer protocol: one class of no-op hooks, in the order of an event's life.

Metrics and traces are such observers; an application adds its own by `outbox.observe(…)`. A hook costs nothing unless
an observer's class overrides it.

A hook is called in the middle of other work, from any thread of a process: it must be quick, must not block, and must
not use the outbox. Its errors are logged and change nothing. Each worker process has a copy of its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from partbox.events import DeliveredEvent, Event
from partbox.protocol.verdict import Verdict

QUICK = 0.001  # seconds; the time of each call that takes longer is reported


@dataclass(frozen=True, slots=True)
class Started:
    """A worker that starts: its subscription, the names of its handlers, and how many of them may run at once."""

    subscription: str
    handlers: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Turn:
    """`count` events that one handler has delivered in a row, on one thread or task.

    `seconds`: the time for all of them; `slow`: the time of each call that took at least `QUICK`. `oldest`, `newest`:
    when the first and the last were published; `ended`: when the last was done; all three in Unix seconds.
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
    """The load of a worker: records in memory that no saved cursor has passed, of at most `window`; lanes that wait or
    run, of an aggregate each, or of a partition for a lone runner; running handlers; partitions owned."""

    records: int
    window: int
    lanes: int
    running: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of sending `messages` to a broker, after `seconds`.

    The broker has `acknowledged` some and `refused` some for good; `retried` will be sent again, `error` being the last
    reason. The worker stopped before the rest was answered.
    """

    messages: int
    acknowledged: int
    refused: int
    retried: int
    seconds: float
    error: BaseException | None


class Observer:
    """Override the hooks you need. Times are in seconds; `handler` is the handler's name."""

    def publishing(self, events: Sequence[Event]) -> AbstractContextManager[Mapping[str, str] | None] | None:
        """Around the writing of a batch, in the publisher's thread or task, after its `before_publish` hooks; it may
        yield headers, which every event gets unless it has one of that name. In the publishing application.
        """
        return None

    def published(self, events: Sequence[Event]) -> None:
        """The events were written, in a transaction that is still open. In the publishing application."""

    def started(self, worker: Started) -> None:
        """This process begins to deliver. Called once, before any other hook."""

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        """This process now owns the partition; `pause`: time since its last owner released it, None if none did."""

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        """A poll that took `seconds` returned these records, by partition and id; called before they are handed over.
        Some may already be parked or finished. `late_ids`: the length of the longest range of ids searched for records
        that committed late. Not called for a poll that returns nothing."""

    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> AbstractContextManager[object] | None:
        """Around each call of a handler, in its thread or task; an exception of the handler passes through it. More
        than one event only for a batch handler. Overriding it slows down every event."""
        return None

    def sending(self, handler: str, messages: int) -> None:
        """A sink sends this number of messages to its broker; called in the event loop's thread."""

    def answered(self, handler: str, answer: Answer) -> None:
        """The broker has answered the messages of `sending`, or the sink has given up waiting."""

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        """The outcome of an event, after `handling` or refused by an open circuit; `verdict` None: it is done. Called
        for each event of a list. Not called if the partition was lost, if the event failed while its partition was
        read anew, or after a timeout that could not end the handler. Overriding it slows down every event."""

    def delivered(self, turn: Turn) -> None:
        """These events are done."""

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        """The event did not succeed: `verdict` says its state (dead, retrying, deferred), attempts, delay and error;
        `error` is the exception of the handler, if any; `seconds` its run time, None if it was not called.
        `verdict.attempts == event.attempt` if an attempt was charged. Not called for events that wait behind this one.
        """

    def circuit(self, handler: str, is_open: bool) -> None:
        """The handler's circuit opened or closed in this process: its downstream counts as down, or healthy again."""

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        """The cursors of `partitions` partitions were saved; `parked`: records parked by state, those that wait behind
        another included; `seconds` on the server."""

    def refused(self, partitions: int) -> None:
        """The fence refused a write about this number of partitions: others own them."""

    def released(self, partition: int) -> None:
        """This process has released the partition, with nothing left open."""

    def forgotten(self, partition: int) -> None:
        """The connection was lost: unfinished records of the partition will be read again."""

    def lost(self, partition: int) -> None:
        """The partition was taken after its lease ended: what was not saved is delivered again by its next owner."""

    def loaded(self, load: Load) -> None:
        """The load of this process; four times a second."""

    def planned(self, moved: int) -> None:
        """This node's supervisor has planned to move this number of partitions to other processes."""

    def buried(self, instances: int) -> None:
        """This node's supervisor has buried this number of dead processes, of any node."""
