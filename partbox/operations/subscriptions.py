"""Subscriptions: create, list, pause, resume, replay and drop them. Replay and drop need a paused subscription without
owners, so they wait until its workers have released all partitions."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from psycopg import Error

from partbox.classes import Instance
from partbox.db.connect import check_server
from partbox.db.delivery import instances
from partbox.db.inspect.stats import list_subscriptions
from partbox.db.operator import subscriptions
from partbox.db.operator.subscriptions import Holder, Problem, Subscription
from partbox.db.session import open_session
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError, Moment, ReplayPosition
from partbox.operations.session import OperatorCommands
from partbox.protocol.lease import SilenceWatch
from partbox.text.wording import format_command, format_count, format_names

log = logging.getLogger("partbox.commands")

CHECK_INTERVAL = 0.05  # seconds between two reads of the holders
TIMEOUT = 60.0  # seconds

Result = TypeVar("Result")
# Called after each read with the holders that the command waits for.
Progress = Callable[[Sequence[Holder]], None]


class InterruptedCommand(KeyboardInterrupt):
    """An error for a command that Ctrl-C interrupted, with a message about the state in which the subscription is
    left."""


class StillBusyError(PartboxError):
    """An error for a command that timed out because workers still run or own partitions of the subscription."""


class FinalState(NamedTuple):
    """A text about the state in which a failed command leaves a subscription.

    `is_certain` is True if the subscription certainly is in the state that it had before the command."""

    text: str
    is_certain: bool


def describe_holders(left: Sequence[Holder]) -> str:
    """Return a text that names the processes that still run or own partitions. Dead processes have no name."""
    return format_names([f"{each.node} {each.pid}" if each.node else "a dead process" for each in left])


SubscriptionList = list[Subscription]

REFUSALS: dict[Problem, str] = {
    "missing": "was dropped by somebody else meanwhile",
    "resumed": "was resumed by somebody else meanwhile, and nothing was changed: try again",
    "owners": "was claimed by a worker meanwhile, and nothing was changed: try again",
    "instances": "got a new worker process meanwhile, and nothing was changed: stop it and try again",
}


class Subscriptions(OperatorCommands):
    """Commands that create, list, pause, resume, replay and drop the subscriptions of an outbox.

    Times are datetimes with a zone, or texts in ISO 8601. A `timeout` is seconds, a timedelta, or a text such as "2m".
    An impossible command raises PartboxError with a remedy, an unreachable database raises psycopg.Error."""

    _group_name = "subscription"

    def create(
        self, name: str, start: Moment = "beginning", types: Iterable[str | Enum | type[Instance]] | None = None
    ) -> None:
        """Create a subscription, which delivers events from the "beginning" of the log, from a time, or from "now" on.

        A time as `start` is a publishing time. If `types` are given, only events of the given types are delivered."""
        name, wanted = arguments.check_subscription_name(name), arguments.check_event_types(types)
        begin = arguments.parse_start_position(start)
        with self._open_session() as conn:
            if (
                begin.since is not None
                and subscriptions.find_replay_range(conn, self._schema, None, begin.since).is_ahead
            ):
                raise ArgumentError("start", f'{start} lies in the future: give a time that is past, or "now"')
            if not subscriptions.create(conn, self._schema, name, *begin, wanted):
                raise PartboxError(
                    f"subscription {name!r} exists already in schema {self._schema!r}: choose another name, or drop it"
                )
        taken = "all types" if wanted is None else ", ".join(wanted)
        self._log_command("create", name, "created subscription %r from %s on, for %s", name, start, taken)

    def list(self) -> SubscriptionList:
        """Return all subscriptions of the outbox, ordered by name."""
        with self._open_session() as conn:
            return list_subscriptions(conn, self._schema)

    def pause(self, name: str) -> bool:
        """Stop delivery to a subscription until it is resumed. Return False if it was paused already. Workers let
        running handlers finish, and release their partitions. New events wait in the log."""
        return self._switch_delivery("pause", subscriptions.pause, name)

    def resume(self, name: str) -> bool:
        """Resume delivery to a paused subscription at the event where it stopped. Return False if it was not paused.
        Workers notice within a heartbeat."""
        return self._switch_delivery("resume", subscriptions.resume, name)

    def _switch_delivery(self, verb: str, act: Callable[[Conn, str, str], bool | None], name: str) -> bool:
        with self._open_session(name) as conn:
            changed = bool(act(conn, self._schema, name))
        if changed:
            self._log_command(verb, name, f"{verb}d subscription %r", name)
        return changed

    def replay(
        self,
        name: str,
        *,
        from_id: int | None = None,
        from_time: Moment | None = None,
        timeout: arguments.Length = TIMEOUT,
        progress: Progress | None = None,
    ) -> int:
        """Set a subscription back to a record id or a time, so that all later events are delivered again, in order.

        Return how many of 256 partitions were set back.

        The subscription is paused until its workers have released everything, at most for `timeout`, and resumed
        afterwards unless it was paused before. Parked records from the position on (dead, retrying, waiting) are
        forgotten and delivered anew, with all their attempts. Raise PartboxError, without any change, if a purge has
        removed records from there on, or if the workers do not release in time."""
        position, patience = (
            arguments.build_replay_position(from_id, from_time),
            arguments.parse_length("timeout", timeout),
        )
        with self._open_session(name) as conn:
            self._check_position(conn, position)

            def rewind(paused_here: bool) -> int:
                done = subscriptions.replay(conn, self._schema, name, *position, resume=paused_here)
                if done.purged is not None:
                    _refuse_purged(position, done.purged)
                if done.problem is not None:
                    _refuse(name, done.problem)
                return done.rewound

            rewound = self._run_when_idle(conn, name, patience, progress, rewind, members=False)
        text, of = "replay of subscription %r from %s on: %s set back", format_count(rewound, "partition")
        self._log_command("replay", name, text, name, position, of)
        return rewound

    def drop(self, name: str, timeout: arguments.Length = TIMEOUT, *, progress: Progress | None = None) -> None:
        """Delete a subscription with its cursors (read positions) and parked records. The log is not changed.

        Stop the workers first: the subscription is paused, and PartboxError is raised unless all workers have ended
        within `timeout`. After an error nothing is changed, and the subscription is resumed unless it was paused
        before."""
        patience = arguments.parse_length("timeout", timeout)
        with self._open_session(name) as conn:

            def drop(_: bool) -> None:
                problem = subscriptions.drop(conn, self._schema, name)
                if problem is not None:
                    _refuse(name, problem)

            self._run_when_idle(conn, name, patience, progress, drop, members=True)
        self._log_command("drop", name, "dropped subscription %r", name)

    @contextmanager
    def _open_session(self, subscription: str | None = None) -> Iterator[Conn]:
        # The connection is to the primary server and has the right to read the id sequence.
        with super()._open_session(subscription) as conn:
            check_server(conn, self._schema)
            yield conn

    def _run_when_idle(
        self,
        conn: Conn,
        name: str,
        timeout: float,
        progress: Progress | None,
        act: Callable[[bool], Result],
        *,
        members: bool,
    ) -> Result:
        """Pause a subscription, wait until no worker owns any of its partitions, and then call `act(paused_here)`."""
        # With `members`, wait until no worker process (instance) is left, either.
        # Workers release their partitions by themselves: at the next tick they find that no partition is assigned to
        # them, start no further handler, and release each partition when its last handler has ended. If the pause, the
        # wait (StillBusy after `timeout` seconds) or `act` fails, or Ctrl-C interrupts, a subscription that was paused
        # here is resumed, through a new connection if need be. After a success it stays as `act` leaves it. This is a
        # function, not a context manager, because a signal that arrives between the pause and the block of a `with`
        # would skip the resume.
        # Returns the result of `act`. `paused_here` is False if the subscription was paused before.
        paused_here = not subscriptions.is_paused(conn, self._schema, name)
        acting = False
        try:
            before = "drop" if members else "replay"
            paused_here = bool(subscriptions.pause(conn, self._schema, name, before))
            left = self._wait_for_holders(conn, name, timeout, progress, members)
            if left:
                raise StillBusyError(_busy_text(timeout, left))
            acting = True
            return act(paused_here)
        except BaseException as error:
            final_state = (
                self._resume_paused(conn, name, acting) if paused_here else self._keep_paused(conn, name, acting)
            )
            raise _explain_error(name, error, final_state) from (error.__cause__ if final_state.is_certain else error)

    def _wait_for_holders(
        self, conn: Conn, name: str, timeout: float, progress: Progress | None, members: bool
    ) -> Sequence[Holder]:
        silence, end = SilenceWatch(), time.monotonic() + timeout
        while True:
            found = subscriptions.list_holders(conn, self._schema, name)
            left = [holder for holder in found if members or holder.owned_partitions]
            if not left or time.monotonic() >= end:
                return left
            if progress is not None:
                progress(left)
            self._bury_expired(conn, name, found, silence)
            time.sleep(CHECK_INTERVAL)

    def _bury_expired(self, conn: Conn, name: str, found: Sequence[Holder], silence: SilenceWatch) -> None:
        """Delete worker processes that no longer send heartbeats from the database, and free their partitions."""
        # Dead workers release nothing, and a subscription without a supervisor has nobody else to bury them.
        # A process is deleted when its lease is over. All partitions whose owners are no longer registered are freed.
        expired = silence.find_expired(
            (each.last_heartbeat for each in found if each.last_heartbeat is not None), time.monotonic()
        )
        if expired or any(each.last_heartbeat is None for each in found):
            buried, freed = instances.bury_instances(conn, self._schema, expired, known_dead=False)
            if freed:
                text, gone = "subscription %r: %s of dead processes may be claimed", len(buried)
                left = format_count(freed, "partition")
                log_event(log, "buried", text, name, left, subscription=name, instances=gone, partitions=freed)

    def _resume_paused(self, conn: Conn, name: str, acting: bool) -> FinalState:
        """Resume a subscription after a failed command, if the command had paused it. Return its final state."""
        # A new connection is used if this one is lost.
        known = True
        try:
            try:
                resumed = subscriptions.resume(conn, self._schema, name)
            except Error:
                known = False
                with open_session(self._dsn, self._settings, "partbox subscription") as other:
                    resumed = subscriptions.resume(other, self._schema, name)
        except (Error, PartboxError) as error:
            resume = format_command("subscription resume", self._schema, None, name)
            return FinalState(
                f"it is left paused, because it could not be resumed ({error}): {resume} resumes it", False
            )
        return FinalState(_resumed_text(resumed, acting), known)

    def _keep_paused(self, conn: Conn, name: str, acting: bool) -> FinalState:
        """Leave a subscription paused after a failed command, because it was paused before. Return its final state."""
        if not acting:
            return FinalState("nothing was changed; it stays paused, as it was before", is_certain=True)
        perhaps = "the command may have succeeded; if not, the subscription stays paused, as it was before"
        try:
            gone = subscriptions.is_paused(conn, self._schema, name) is None
        except Error:
            return FinalState(perhaps, is_certain=False)
        return FinalState(_resumed_text(None, acting) if gone else perhaps, is_certain=True)

    def _check_position(self, conn: Conn, position: ReplayPosition) -> None:
        replay_range = subscriptions.find_replay_range(conn, self._schema, *position)
        if replay_range.is_ahead:
            raise ArgumentError("from_time", f"{position} lies in the future: give a time that is past")
        if position.from_id is not None and position.from_id > replay_range.newest:
            raise PartboxError(f"{position} does not exist yet: the newest is record {replay_range.newest}")
        if replay_range.purged is not None:
            _refuse_purged(position, replay_range.purged)


def _resumed_text(resumed: bool | None, acting: bool) -> str:
    # A replay resumes by itself once it is done, a drop leaves nothing to resume.
    if resumed is None:
        return "it has been dropped"
    if acting and not resumed:
        return "it is active: the command has succeeded, or somebody has resumed it"
    return "nothing was changed, and delivery goes on"


def _explain_error(name: str, error: BaseException, final_state: FinalState) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return InterruptedCommand(f"subscription {name!r}: {final_state.text}")
    if isinstance(error, StillBusyError):
        return PartboxError(f"subscription {name!r}: {error}; {final_state.text}")
    if final_state.is_certain or not isinstance(error, Exception):
        return error
    return PartboxError(f"subscription {name!r}: {' '.join(str(error).split())}; {final_state.text}")


def _busy_text(timeout: float, left: Sequence[Holder]) -> str:
    owners = [holder for holder in left if holder.owned_partitions]
    if not owners:
        return (
            f"after {timeout:g} s worker processes are still running: {describe_holders(left)}. Stop them and try again"
        )
    owned = sum(holder.owned_partitions for holder in owners)
    return (
        f"after {timeout:g} s {owned} partition{'s are' if owned > 1 else ' is'} still owned by "
        f"{describe_holders(owners)}: "
        "handlers there have not ended. Wait for them, or end those processes, and try again"
    )


def _refuse(name: str, problem: Problem) -> NoReturn:
    raise PartboxError(f"subscription {name!r} {REFUSALS[problem]}")


def _refuse_purged(position: ReplayPosition, purged: int) -> NoReturn:
    perhaps = "" if position.from_time is None else ", perhaps from that time or later"
    raise PartboxError(
        f"replay from {position} is not possible: a purge has removed records up to id {purged}{perhaps}; the earliest "
        f"possible start is record {purged + 1}"
    )
