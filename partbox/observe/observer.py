"""The observer protocol: a class of hooks that do nothing, and classes of the facts that hooks get."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from partbox.events import DeliveredEvent, Event
from partbox.protocol.verdict import Verdict

# Seconds. The time of each call that takes at least this long is reported on its own.
QUICK = 0.001


@dataclass(frozen=True, slots=True)
class Started:
    """A worker that starts: its subscription, its handlers' names, and how many handlers may run at once."""

    subscription: str
    handlers: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A run of events that one handler has delivered successfully in a row, on one thread or task.

    `seconds` is the time for all, `slow` the time of each call of at least `QUICK`. `oldest` and `newest` are when the
    first and last event were published, `ended` when the last was done, in Unix seconds."""

    handler: str
    count: int
    seconds: float
    slow: Sequence[float]
    oldest: float
    newest: float
    ended: float


@dataclass(frozen=True, slots=True)
class Load:
    """The present load of a worker: its events in memory, running handlers and owned partitions.

    `records` (at most `window`) are in memory and not yet passed by a saved cursor. `lanes`, which wait or run, each
    have the events of one aggregate (or one partition if one thread runs all handlers)."""

    records: int
    window: int
    lanes: int
    running: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The numbers of sent messages that a broker acknowledged, that it refused for good, or that are sent again.

    `retried` counts the last kind. If the worker stopped, the rest got no answer. `error` is the last error, and
    `seconds` the time from sending to the answer."""

    messages: int
    acknowledged: int
    refused: int
    retried: int
    seconds: float
    error: BaseException | None


class Observer:
    """A base class for code that gets notified when events are published and delivered.

    Override the hooks that you need; the others cost nothing. Hooks run in the middle of other work, in any thread:
    they must be quick, must not block, and must not use the outbox. Errors of observers are logged and change nothing.
    Each worker process has its own copy of an observer. Times are in seconds. `handler` is the handler's name."""

    def publishing(self, events: Sequence[Event]) -> AbstractContextManager[Mapping[str, str] | None] | None:
        """Wrap the writing of a batch of events in the publisher's thread or task, after the `before_publish` hooks.
        The context manager may yield headers, which are added to each event unless it has a header of that name."""
        return None

    def published(self, events: Sequence[Event]) -> None:
        """Handle events that the application has just written. Their transaction is still open and may be rolled
        back."""

    def started(self, worker: Started) -> None:
        """Handle the start of a worker in this process. It is called once, before any other hook."""

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        """Handle the takeover of a partition: this process delivers its events from now on. `pause` is the time since
        the previous owner released the partition, or None if no owner did."""

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        """Handle the records that a query has just read, before handlers get them. Not called if there are none.

        `records` are pairs of partition and id, some of which may be parked or finished already. `seconds` is the time
        of the query. `late_ids` is the length of the longest range of ids searched for records that committed late."""

    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> AbstractContextManager[object] | None:
        """Wrap each call of a handler, in the handler's thread or task. An exception of the handler passes through.
        Only a batch handler gets more than one event. Overriding this hook slows down every event."""
        return None

    def sending(self, handler: str, messages: int) -> None:
        """Handle the moment before messages are sent to a broker. Called in the thread of the event loop. `messages` is
        the number of messages that the sink sends."""

    def answered(self, handler: str, answer: Answer) -> None:
        """Handle the broker's answer to the messages that `sending` reported, or the end of the wait for it."""

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        """Handle the outcome of one event for one handler. `verdict` is None if the event is done.

        The hook comes after `handling`, or because an open circuit (the handler's downstream counts as down) refused
        the event. Called for each event of a batch. Not called if the partition was lost, if the event failed while its
        partition was read anew, or after a timeout that could not end the handler. Overriding this hook slows down
        every event."""

    def delivered(self, turn: Turn) -> None:
        """Handle a run of events that one handler has delivered successfully. `turn` has their number and times."""

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        """Handle a failed event that is stored in a database row of its own, until a retry or for good.

        `verdict` has its state (dead, retrying, deferred), attempts, delay and error. `error` is the exception of the
        handler, if any, and `seconds` its run time, or None if it was not called. If an attempt was charged,
        `verdict.attempts == event.attempt`. Not called for events that wait behind this one."""

    def circuit(self, handler: str, is_open: bool) -> None:
        """Handle the opening or closing of a handler's circuit breaker in this process. An open circuit means that the
        handler's downstream counts as down, a closed one that it counts as healthy again."""

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        """Handle a save of the delivery positions of several partitions. `parked` counts the parked records by state,
        including records that wait behind another. `seconds` is the time on the server."""

    def refused(self, partitions: int) -> None:
        """Handle a write that the database refused because other processes own the partitions by now. `partitions` is
        the number of partitions."""

    def released(self, partition: int) -> None:
        """Handle the release of a partition by this process, with no event left unfinished."""

    def forgotten(self, partition: int) -> None:
        """Handle a lost database connection, after which a partition's unfinished events are read again."""

    def lost(self, partition: int) -> None:
        """Handle the loss of a partition whose lease ended. Its next owner delivers unsaved events again."""

    def loaded(self, load: Load) -> None:
        """Handle a report of this process's present load, which comes four times a second."""

    def planned(self, moved: int) -> None:
        """Handle a plan of this node's supervisor to move partitions to other processes. `moved` is their number."""

    def buried(self, instances: int) -> None:
        """Handle the removal of dead processes, of any node, by this node's supervisor, which frees their partitions.
        `instances` is the number of processes."""
