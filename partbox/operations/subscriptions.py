"""Subscriptions for operators: create, list, pause, resume, replay, drop.

A replay and a drop need a quiet subscription: paused, with no owners. Workers release by themselves: at their next tick
they see that nothing is assigned to them, start no further handler and release each partition when its last one has
ended. Dead ones release nothing, so they are buried here when their lease is over; without a supervisor of the
subscription nothing else would do it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from psycopg import Error

from partbox.classes import Instance
from partbox.db.connect import check
from partbox.db.delivery import instances
from partbox.db.inspect.stats import list_subscriptions
from partbox.db.operator import subscriptions
from partbox.db.operator.subscriptions import Holder, Problem, Subscription
from partbox.db.session import session
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError, Moment, ReplayPosition
from partbox.operations.session import OperatorVerbs
from partbox.protocol.lease import SilenceWatch
from partbox.text.wording import command, counted, several

log = logging.getLogger("partbox.commands")

CHECK_INTERVAL = 0.05  # seconds between two checks of the holders
TIMEOUT = 60.0

Result = TypeVar("Result")
Progress = Callable[[Sequence[Holder]], None]
"""Called at every check with the holders that are waited for."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, and how it has left the subscription, in words."""


class StillBusy(PartboxError):
    """The subscription was not quiet in time."""


class FinalState(NamedTuple):
    """The state in which a failure leaves a subscription; `known`: as it was before, and that was never in doubt."""

    text: str
    known: bool


def describe_holders(left: Sequence[Holder]) -> str:
    """The holders, in words for people."""
    return several([f"{each.node} {each.pid}" if each.node else "a dead process" for each in left])


SubscriptionList = list[Subscription]

REFUSALS: dict[Problem, str] = {
    "missing": "was dropped by somebody else meanwhile",
    "resumed": "was resumed by somebody else meanwhile, and nothing was changed: repeat this",
    "owners": "was claimed by a worker meanwhile, and nothing was changed: repeat this",
    "instances": "has got a new worker process meanwhile, and nothing was changed: stop it and repeat this",
}


class Subscriptions(OperatorVerbs):
    """The subscriptions of an outbox. Every call opens a connection of its own.

    What cannot be done raises PartboxError with the remedy; a database that cannot be reached raises psycopg.Error.
    Times are datetimes with a zone, or texts in ISO 8601. A `timeout` is seconds, a timedelta, or a text such as "2m".
    """

    _noun = "subscription"

    def create(
        self, name: str, start: Moment = "beginning", types: Iterable[str | Enum | type[Instance]] | None = None
    ) -> None:
        """Make a subscription that gets what the log holds from the "beginning", from a time, or from "now" on.

        Now: what had committed before the call is not delivered; what commits after it is, once, also of transactions
        that were open. A time is that of publishing. `types`: only events of these types; None is all.
        """
        name, wanted = arguments.subscription_name(name), arguments.event_types(types)
        begin = arguments.start_position(start)
        with self._session() as conn:
            if begin.since is not None and subscriptions.replay_range(conn, self._schema, None, begin.since).ahead:
                raise ArgumentError("start", f'{start} lies in the future: give a time that is past, or "now"')
            if not subscriptions.create(conn, self._schema, name, *begin, wanted):
                raise PartboxError(
                    f"subscription {name!r} exists already in schema {self._schema!r}: choose another name, or drop it"
                )
        taken = "all types" if wanted is None else ", ".join(wanted)
        self._log("create", name, "created subscription %r from %s on, for %s", name, start, taken)

    def list(self) -> SubscriptionList:
        """All subscriptions, by name."""
        with self._session() as conn:
            return list_subscriptions(conn, self._schema)

    def pause(self, name: str) -> bool:
        """Deliver nothing more until it is resumed: workers end what runs, and release; False if it was paused.

        What is published meanwhile waits in the log.
        """
        return self._switch("pause", subscriptions.pause, name)

    def resume(self, name: str) -> bool:
        """Deliver again, from where it stood still; False if it was not paused. Workers notice within a heartbeat."""
        return self._switch("resume", subscriptions.resume, name)

    def _switch(self, verb: str, act: Callable[[Conn, str, str], bool | None], name: str) -> bool:
        with self._session(name) as conn:
            changed = bool(act(conn, self._schema, name))
        if changed:
            self._log(verb, name, f"{verb}d subscription %r", name)
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
        """Deliver again, in order, everything from a record id or a time on; how many of 256 partitions were set back.

        It pauses the subscription, waits at most `timeout` until its workers have released everything, and lets it go
        on unless it was paused before. What is parked from there on (dead, retrying, waiting) is forgotten and comes
        anew, with all its attempts. PartboxError where a purge has removed records, and if the workers do not release
        in time: nothing is changed, and it goes on.
        """
        position, patience = arguments.replay_position(from_id, from_time), arguments.length("timeout", timeout)
        with self._session(name) as conn:
            self._check(conn, position)

            def rewind(paused_here: bool) -> int:
                done = subscriptions.replay(conn, self._schema, name, *position, resume=paused_here)
                if done.purged is not None:
                    _refuse_purged(position, done.purged)
                if done.problem is not None:
                    _refuse(name, done.problem)
                return done.rewound

            rewound = self._run_when_idle(conn, name, patience, progress, rewind, members=False)
        text, of = "replay of subscription %r from %s on: %s set back", counted(rewound, "partition")
        self._log("replay", name, text, name, position, of)
        return rewound

    def drop(self, name: str, timeout: arguments.Length = TIMEOUT, *, progress: Progress | None = None) -> None:
        """Delete a subscription with its cursors and parked records; the log stays as it is.

        Stop its workers first: it pauses it and waits at most `timeout` until they have released everything and ended.
        PartboxError if they have not: nothing is changed, and it goes on unless it was paused before.
        """
        patience = arguments.length("timeout", timeout)
        with self._session(name) as conn:

            def drop(_: bool) -> None:
                problem = subscriptions.drop(conn, self._schema, name)
                if problem is not None:
                    _refuse(name, problem)

            self._run_when_idle(conn, name, patience, progress, drop, members=True)
        self._log("drop", name, "dropped subscription %r", name)

    @contextmanager
    def _session(self, subscription: str | None = None) -> Iterator[Conn]:
        """A connection to the primary that may read the sequence, for a subscription that exists there."""
        with super()._session(subscription) as conn:
            check(conn, self._schema)
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
        """Call `act`, with whether it was paused here, while no partition has an owner and, with `members`, there is no
        instance; what `act` returns.

        It goes on again whatever fails: the pause itself, the wait, which is a PartboxError after `timeout` seconds,
        `act`, or the connection, for which there is another one; and if it is interrupted. It is left as `act` leaves
        it when that succeeds. A function and not a context manager: a signal between the pause and the block of a
        `with` would meet neither.
        """
        paused_here = not subscriptions.paused(conn, self._schema, name)
        acting = False
        try:
            before = "drop" if members else "replay"
            paused_here = bool(subscriptions.pause(conn, self._schema, name, before))
            left = self._wait_for_holders(conn, name, timeout, progress, members)
            if left:
                raise StillBusy(_busy_text(timeout, left))
            acting = True
            return act(paused_here)
        except BaseException as error:
            final_state = (
                self._resume_paused(conn, name, acting) if paused_here else self._keep_paused(conn, name, acting)
            )
            raise _explain_error(name, error, final_state) from (error.__cause__ if final_state.known else error)

    def _wait_for_holders(
        self, conn: Conn, name: str, timeout: float, progress: Progress | None, members: bool
    ) -> Sequence[Holder]:
        """Wait until it stands still; the holders that are left when the time is over."""
        silence, end = SilenceWatch(), time.monotonic() + timeout
        while True:
            found = subscriptions.list_holders(conn, self._schema, name)
            left = [holder for holder in found if members or holder.owned]
            if not left or time.monotonic() >= end:
                return left
            if progress is not None:
                progress(left)
            self._bury_expired(conn, name, found, silence)
            time.sleep(CHECK_INTERVAL)

    def _bury_expired(self, conn: Conn, name: str, found: Sequence[Holder], silence: SilenceWatch) -> None:
        """Bury those whose lease is over, and free the partitions of owners that are no instances any more."""
        expired = silence.expired((each.beat for each in found if each.beat is not None), time.monotonic())
        if expired or any(each.beat is None for each in found):
            buried, freed = instances.bury(conn, self._schema, expired, known_dead=False)
            if freed:
                text, gone = "subscription %r: %s of dead processes may be claimed", len(buried)
                left = counted(freed, "partition")
                log_event(log, "buried", text, name, left, subscription=name, instances=gone, partitions=freed)

    def _resume_paused(self, conn: Conn, name: str, acting: bool) -> FinalState:
        """Resume what was paused here; through a new connection if this one is lost."""
        known = True
        try:
            try:
                resumed = subscriptions.resume(conn, self._schema, name)
            except Error:
                known = False
                with session(self._dsn, self._settings, "partbox subscription") as other:
                    resumed = subscriptions.resume(other, self._schema, name)
        except (Error, PartboxError) as error:
            resume = command("subscription resume", self._schema, None, name)
            return FinalState(
                f"it is left paused, because it could not be resumed ({error}): {resume} resumes it", False
            )
        return FinalState(_resumed_text(resumed, acting), known)

    def _keep_paused(self, conn: Conn, name: str, acting: bool) -> FinalState:
        """The end of a verb on a subscription that was paused before: it stays paused, unless it is gone."""
        if not acting:
            return FinalState("nothing was changed; it stays paused, as it was before", known=True)
        perhaps = "what was asked for may have been done; if not, it stays paused, as it was before"
        try:
            gone = subscriptions.paused(conn, self._schema, name) is None
        except Error:
            return FinalState(perhaps, known=False)
        return FinalState(_resumed_text(None, acting) if gone else perhaps, known=True)

    def _check(self, conn: Conn, position: ReplayPosition) -> None:
        """Refuse before anything is paused what cannot be done anyway."""
        replay_range = subscriptions.replay_range(conn, self._schema, *position)
        if replay_range.ahead:
            raise ArgumentError("from_time", f"{position} lies in the future: give a time that is past")
        if position.from_id is not None and position.from_id > replay_range.newest:
            raise PartboxError(f"{position} does not exist yet: the newest is record {replay_range.newest}")
        if replay_range.purged is not None:
            _refuse_purged(position, replay_range.purged)


def _resumed_text(resumed: bool | None, acting: bool) -> str:
    """The result of resuming it, in words: a replay resumes by itself when it is done, a drop leaves nothing."""
    if resumed is None:
        return "it has been dropped"
    if acting and not resumed:
        return "it is active: what was asked for was done, or somebody has resumed it"
    return "nothing was changed, and it goes on"


def _explain_error(name: str, error: BaseException, final_state: FinalState) -> BaseException:
    """The error, with the state in which the subscription is left where that is not obvious."""
    if isinstance(error, KeyboardInterrupt):
        return Interrupted(f"subscription {name!r}: {final_state.text}")
    if isinstance(error, StillBusy):
        return PartboxError(f"subscription {name!r}: {error}; {final_state.text}")
    if final_state.known or not isinstance(error, Exception):
        return error
    return PartboxError(f"subscription {name!r}: {' '.join(str(error).split())}; {final_state.text}")


def _busy_text(timeout: float, left: Sequence[Holder]) -> str:
    owners = [holder for holder in left if holder.owned]
    if not owners:
        return (
            f"after {timeout:g} s worker processes still run for it: {describe_holders(left)}. Stop them "
            f"and repeat this"
        )
    owned = sum(holder.owned for holder in owners)
    return (
        f"after {timeout:g} s {owned} partition{'s are' if owned > 1 else ' is'} still owned by "
        f"{describe_holders(owners)}: "
        "handlers there have not ended. Wait for them, or end those processes, and repeat this"
    )


def _refuse(name: str, problem: Problem) -> NoReturn:
    raise PartboxError(f"subscription {name!r} {REFUSALS[problem]}")


def _refuse_purged(position: ReplayPosition, purged: int) -> NoReturn:
    perhaps = "" if position.from_time is None else ", perhaps of that time or later"
    raise PartboxError(
        f"replay from {position} is not possible: a purge has removed records up to id {purged}{perhaps}; the lowest "
        f"possible is record {purged + 1}"
    )
