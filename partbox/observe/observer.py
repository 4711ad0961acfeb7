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
    """The facts that observers get when a worker starts: its subscription, its handlers and its concurrency."""

    # `handlers` are the names of the handlers, `concurrency` is the number of handlers that may run at once.

    subscription: str
    handlers: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Statistics of a series of events that one handler processed successfully in a row, on one thread or task."""

    # `seconds` is the time for all, `slow` the time of each call of at least `QUICK`. `oldest` and `newest` are when
    # the first and last event were published, `ended` when the last was done, in Unix seconds.

    handler: str
    count: int
    seconds: float
    slow: Sequence[float]
    oldest: float
    newest: float
    ended: float


@dataclass(frozen=True, slots=True)
class Load:
    """The present load of a worker: its events in memory, running handlers and owned partitions."""

    # `records` (at most `window`) are in memory and not yet passed by a saved cursor. `lanes`, which wait or run, each
    # have the events of one aggregate (or one partition if one thread runs all handlers).

    records: int
    window: int
    lanes: int
    running: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A message broker's answer to sent messages: how many were acknowledged, refused or must be sent again."""

    # `refused` messages are refused for good, `retried` messages are sent again. If the worker stopped, the rest got no
    # answer. `error` is the last error, and `seconds` the time from sending to the answer.

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
        """Return a context manager in which a batch of events is written, or None if none is needed.

        The context is entered in the publisher's thread or task, after the `before_publish` hooks. The context manager
        may yield headers, which are added to each event unless it has a header of that name."""
        return None

    def published(self, events: Sequence[Event]) -> None:
        """Get notified of events that the application has just written, in a transaction that may still be rolled
        back."""

    def started(self, worker: Started) -> None:
        """Get notified when a worker starts in this process, once and before any other hook."""

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        """Get notified when this process takes over a partition, whose events it delivers from now on.

        `pause` is the time since the previous owner released the partition, or None if no owner did."""

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        """Get notified of the records that a query has just read, before they are passed to handlers.

        The hook is not called if there are none. `records` are pairs of partition and id, some of which may be parked
        or finished already. `seconds` is the time of the query. `late_ids` is the length of the longest range of ids
        searched for records that committed late."""

    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> AbstractContextManager[object] | None:
        """Return a context manager in which each call of a handler runs, or None if none is needed.

        The context is entered in the handler's thread or task. An exception of the handler passes through. Only a batch
        handler gets more than one event. Overriding this hook slows down every event."""
        return None

    def sending(self, handler: str, messages: int) -> None:
        """Get notified just before messages are sent to a message broker.

        The hook is called in the thread of the event loop. `messages` is the number of messages that the sink sends."""

    def answered(self, handler: str, answer: Answer) -> None:
        """Get notified when a message broker has answered to sent messages, or when the wait for the answer has ended.

        `sending` has reported the messages."""

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        """Get notified when the outcome of one event for one handler is known.

        `verdict` is None if the event is done. The hook comes after `handling`, or because an open circuit (the
        handler's downstream counts as down) refused the event. Called for each event of a batch. Not called if the
        partition was lost, if the event failed while its partition was read anew, or after a timeout that could not end
        the handler. Overriding this hook slows down every event."""

    def delivered(self, turn: Turn) -> None:
        """Get notified when one handler has successfully processed a series of events in a row.

        `turn` has the number of the events and the times."""

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        """Get notified when a failed event is stored in a database row of its own, to be retried later or given up.

        `verdict` has its state (dead, retrying, deferred), attempts, delay and error. `error` is the exception of the
        handler, if any, and `seconds` its run time, or None if it was not called. If an attempt was charged,
        `verdict.attempts == event.attempt`. Not called for events that wait behind this one."""

    def circuit(self, handler: str, is_open: bool) -> None:
        """Get notified when the circuit breaker of a handler opens or closes in this process.

        An open circuit means that the handler's downstream counts as down, a closed one that it counts as healthy
        again."""

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        """Get notified when the delivery positions of several partitions have been saved to the database.

        `parked` counts the parked records by state, including records that wait behind another. `seconds` is the time
        on the server."""

    def refused(self, partitions: int) -> None:
        """Get notified when the database refused a write because other processes own the partitions by now.

        `partitions` is the number of partitions."""

    def released(self, partition: int) -> None:
        """Get notified when this process has released a partition, with no event left unfinished."""

    def forgotten(self, partition: int) -> None:
        """Get notified when this process has to read a partition's unfinished events again after a lost connection."""

    def lost(self, partition: int) -> None:
        """Get notified when this process has lost a partition because its lease ended.

        The next owner delivers unsaved events of the partition again."""

    def loaded(self, load: Load) -> None:
        """Get notified of this process's present load, such as its running handlers, four times a second."""

    def planned(self, moved: int) -> None:
        """Get notified when this node's supervisor has planned to move partitions to other processes.

        `moved` is the number of partitions."""

    def buried(self, instances: int) -> None:
        """Get notified when this node's supervisor has removed dead processes from the database.

        The removal frees their partitions. The processes may be of any node, and `instances` is their number."""
