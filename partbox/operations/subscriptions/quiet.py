"""A quiet subscription: paused, with no owners.

Workers release by themselves: at their next tick they see that nothing is assigned to them, start no further handler
and release each partition when its last one has ended. Dead ones release nothing, so they are buried here when their
lease is over; without a supervisor of the subscription nothing else would do it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from psycopg import Connection, Error

from partbox.db.delivery import instances
from partbox.db.operator import subscriptions
from partbox.db.operator.subscriptions import Holder
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.protocol.burial import Silence
from partbox.text.wording import command, counted

log = logging.getLogger("partbox.commands")

LOOK = 0.05  # seconds between two checks of the holders
NAMED = 5

Progress = Callable[[Sequence[Holder]], None]
"""Called at every check with the holders that are waited for."""
Again = Callable[[], AbstractContextManager[Connection[Any]]]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, and how it has left the subscription, in words."""


class Busy(PartboxError):
    """The subscription was not quiet in time."""


class Left(NamedTuple):
    """The state in which a failure leaves a subscription; `known`: as it was before, and that was never in doubt."""

    text: str
    known: bool


@contextmanager
def quiet(
    conn: Connection[Any],
    schema: str,
    name: str,
    *,
    timeout: float,
    progress: Progress | None,
    members: bool,
    again: Again,
) -> Iterator[bool]:
    """While the block runs no partition of it has an owner and, with `members`, it has no instance.

    Gives whether it was paused here. Then it goes on again whatever fails: the pause itself, the wait, which is a
    PartboxError after `timeout` seconds, the block, or the connection, for which there is another one by `again`; and
    if it is interrupted. After a block that succeeds it is left as the block leaves it.
    """
    paused_here = not subscriptions.paused(conn, schema, name)
    acting = False
    try:
        paused_here = bool(subscriptions.pause(conn, schema, name))
        left = _wait(conn, schema, name, timeout, progress, members)
        if left:
            raise Busy(_busy(timeout, left))
        acting = True
        yield paused_here
    except BaseException as error:
        how = _go_on(conn, schema, name, again, acting) if paused_here else _as_before(conn, schema, name, acting)
        raise _told(name, error, how) from (error.__cause__ if how.known else error)


def described(left: Sequence[Holder]) -> str:
    """The holders, in words for people."""
    names = [f"{each.node} {each.pid}" if each.node else "a dead process" for each in left]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _wait(
    conn: Connection[Any], schema: str, name: str, timeout: float, progress: Progress | None, members: bool
) -> Sequence[Holder]:
    """Wait until it stands still; the holders that are left when the time is over."""
    silence, end = Silence(), time.monotonic() + timeout
    while True:
        found = subscriptions.holders(conn, schema, name)
        left = [holder for holder in found if members or holder.owned]
        if not left or time.monotonic() >= end:
            return left
        if progress is not None:
            progress(left)
        _bury(conn, schema, name, found, silence)
        time.sleep(LOOK)


def _bury(conn: Connection[Any], schema: str, name: str, found: Sequence[Holder], silence: Silence) -> None:
    """Bury those whose lease is over, and free the partitions of owners that are no instances any more."""
    over = silence.over((each.beat for each in found if each.beat is not None), time.monotonic())
    if over or any(each.beat is None for each in found):
        buried, freed = instances.bury(conn, schema, over, known_dead=False)
        if freed:
            text, gone = "subscription %r: %s of dead processes may be claimed", len(buried)
            left = counted(freed, "partition")
            log_event(log, "buried", text, name, left, subscription=name, instances=gone, partitions=freed)


def _go_on(conn: Connection[Any], schema: str, name: str, again: Again, acting: bool) -> Left:
    """Resume what was paused here; through a new connection if this one is lost."""
    try:
        try:
            resumed = subscriptions.resume(conn, schema, name)
        except Error:
            with again() as other:
                return Left(_resumed(subscriptions.resume(other, schema, name), acting), known=False)
    except (Error, PartboxError) as error:
        resume = command("subscription resume", schema, None, name)
        return Left(f"it is left paused, because it could not be resumed ({error}): {resume} resumes it", False)
    return Left(_resumed(resumed, acting), known=True)


def _resumed(resumed: bool | None, acting: bool) -> str:
    """The result of resuming it, in words: a replay resumes by itself when it is done, a drop leaves nothing."""
    if resumed is None:
        return "it has been dropped"
    if acting and not resumed:
        return "it is active: what was asked for was done, or somebody has resumed it"
    return "nothing was changed, and it goes on"


def _as_before(conn: Connection[Any], schema: str, name: str, acting: bool) -> Left:
    """It was paused before, and stays so unless it is gone; a statement without an answer may have been done."""
    if not acting:
        return Left("nothing was changed; it stays paused, as it was before", known=True)
    perhaps = "what was asked for may have been done; if not, it stays paused, as it was before"
    try:
        gone = subscriptions.paused(conn, schema, name) is None
    except Error:
        return Left(perhaps, known=False)
    return Left(_resumed(None, acting) if gone else perhaps, known=True)


def _told(name: str, error: BaseException, how: Left) -> BaseException:
    """The error, with the state in which the subscription is left where that is not obvious."""
    if isinstance(error, KeyboardInterrupt):
        return Interrupted(f"subscription {name!r}: {how.text}")
    if isinstance(error, Busy):
        return PartboxError(f"subscription {name!r}: {error}; {how.text}")
    if how.known or not isinstance(error, Exception):
        return error
    return PartboxError(f"subscription {name!r}: {' '.join(str(error).split())}; {how.text}")


def _busy(timeout: float, left: Sequence[Holder]) -> str:
    owners = [holder for holder in left if holder.owned]
    if not owners:
        return f"after {timeout:g} s worker processes still run for it: {described(left)}. Stop them and repeat this"
    owned = sum(holder.owned for holder in owners)
    return (
        f"after {timeout:g} s {owned} partition{'s are' if owned > 1 else ' is'} still owned by {described(owners)}: "
        "handlers there have not ended. Wait for them, or end those processes, and repeat this"
    )
